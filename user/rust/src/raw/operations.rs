//! Operations: a call, and the resource that has to stay alive and untouched while it is under way.
//!
//! The rule that makes them sound: all memory that a call names is on the heap and belongs to the
//! resource, so moving or forgetting the resource leaves it where it is.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use abi::fs::AT_FDCWD;

use super::binding::timespec;
use super::trap;
use crate::posted::Resource;

/// A system call whose soundness somebody promised, while its resource is alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: usize,
    pub(crate) arguments: [u64; 6],
}

impl Call {
    /// Carries it out.
    pub(crate) fn trap(&self) -> i64 {
        // SAFETY: promised to `Operation::new`, whose resource the caller holds.
        unsafe { trap(self.number, &self.arguments) }
    }
}

/// A system call that has not begun, with all that it needs.
#[must_use = "an operation does nothing until it is called, posted or awaited"]
#[derive(Debug)]
pub struct Operation<R> {
    pub(crate) call: Call,
    pub(crate) resource: R,
}

impl<R: Resource> Operation<R> {
    /// A system call by number.
    ///
    /// # Safety
    /// The call must be sound while `resource` is alive, however late that is and on whichever core
    /// it is carried out: memory that it names is on the heap and belongs to `resource`, which does
    /// not touch it before [`Resource::finish`]. It must not end, copy or replace the process or
    /// this thread.
    pub unsafe fn new(number: usize, arguments: [u64; 6], resource: R) -> Operation<R> {
        Operation { call: Call { number, arguments }, resource }
    }
}

fn to_io(result: i64) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| error(result))
}

fn error(result: i64) -> io::Error {
    io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(i32::MAX))
}

/// A descriptor and a buffer. Output: how many bytes were moved, and the buffer.
#[derive(Debug)]
pub struct Transfer {
    _descriptor: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Resource for Transfer {
    type Output = (io::Result<usize>, Vec<u8>);

    fn finish(self, result: i64) -> Self::Output {
        (to_io(result), self.buffer)
    }
}

fn transfer(
    number: usize,
    descriptor: &Arc<OwnedFd>,
    mut buffer: Vec<u8>,
    offset: u64,
) -> Operation<Transfer> {
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    let arguments = [raw_descriptor(descriptor), address, buffer.len() as u64, offset, 0, 0];
    let resource = Transfer { _descriptor: descriptor.clone(), buffer };
    // SAFETY: the kernel moves at most the buffer's length of initialised bytes, on the heap, which
    // nobody touches before `finish`; the descriptor is open until then.
    unsafe { Operation::new(number, arguments, resource) }
}

fn raw_descriptor(descriptor: &OwnedFd) -> u64 {
    // As the kernel takes it; never negative.
    descriptor.as_raw_fd() as u64
}

/// Reads into the buffer, from its beginning, at most its length.
pub fn read(descriptor: &Arc<OwnedFd>, buffer: Vec<u8>) -> Operation<Transfer> {
    transfer(0, descriptor, buffer, 0)
}

/// Writes the buffer, or its beginning.
pub fn write(descriptor: &Arc<OwnedFd>, buffer: Vec<u8>) -> Operation<Transfer> {
    transfer(1, descriptor, buffer, 0)
}

/// Reads at an offset, without regard to the position of the file.
pub fn read_at(descriptor: &Arc<OwnedFd>, buffer: Vec<u8>, offset: u64) -> Operation<Transfer> {
    transfer(17, descriptor, buffer, offset)
}

/// Writes at an offset, without regard to the position of the file.
pub fn write_at(descriptor: &Arc<OwnedFd>, buffer: Vec<u8>, offset: u64) -> Operation<Transfer> {
    transfer(18, descriptor, buffer, offset)
}

/// A path. Output: the descriptor of the file.
#[derive(Debug)]
pub struct Opening(Option<CString>);

impl Resource for Opening {
    type Output = io::Result<Arc<OwnedFd>>;

    fn finish(self, result: i64) -> Self::Output {
        let descriptor = i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0);
        match (self.0, descriptor) {
            (None, _) => Err(io::ErrorKind::InvalidInput.into()),
            (_, None) => Err(error(result)),
            // SAFETY: the kernel has just opened it for us.
            (_, Some(descriptor)) => Ok(Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) })),
        }
    }
}

const OPENAT: usize = 257;
const O_RDWR: u64 = 2;
const O_CREAT: u64 = 0o100;
const O_TRUNC: u64 = 0o1000;
const O_CLOEXEC: u64 = 0o200_0000;

fn opening(path: &Path, flags: u64) -> Operation<Opening> {
    let path = CString::new(path.as_os_str().as_bytes()).ok();
    let address = path.as_ref().map_or(0, |path| path.as_ptr().expose_provenance() as u64);
    let arguments = [i64::from(AT_FDCWD).cast_unsigned(), address, flags | O_CLOEXEC, 0o666, 0, 0];
    // SAFETY: the kernel only reads the string, which is on the heap and the resource's; address 0
    // it refuses.
    unsafe { Operation::new(OPENAT, arguments, Opening(path)) }
}

/// Opens a file for reading.
pub fn open(path: impl AsRef<Path>) -> Operation<Opening> {
    opening(path.as_ref(), 0)
}

/// Makes a file, or empties it, for reading and writing.
pub fn create(path: impl AsRef<Path>) -> Operation<Opening> {
    opening(path.as_ref(), O_RDWR | O_CREAT | O_TRUNC)
}

/// Nothing, or a descriptor that stays open. Output: whether it worked.
#[derive(Debug)]
pub struct Simple {
    _descriptor: Option<Arc<OwnedFd>>,
}

impl Resource for Simple {
    type Output = io::Result<()>;

    fn finish(self, result: i64) -> Self::Output {
        to_io(result).map(|_| ())
    }
}

/// Closes a descriptor, and tells what dropping it would not: whether it worked.
pub fn close(descriptor: OwnedFd) -> Operation<Simple> {
    let arguments = [i64::from(descriptor.into_raw_fd()).cast_unsigned(), 0, 0, 0, 0, 0];
    // SAFETY: the descriptor was ours alone.
    unsafe { Operation::new(3, arguments, Simple { _descriptor: None }) }
}

/// Waits until what was written to a file is on its device.
pub fn sync(descriptor: &Arc<OwnedFd>) -> Operation<Simple> {
    let arguments = [raw_descriptor(descriptor), 0, 0, 0, 0, 0];
    // SAFETY: names no memory; the descriptor stays open.
    unsafe { Operation::new(74, arguments, Simple { _descriptor: Some(descriptor.clone()) }) }
}

/// A duration, for a call that sleeps. Output: whether it slept for all of it.
#[derive(Debug)]
pub struct Sleeping {
    _time: Vec<i64>,
}

impl Resource for Sleeping {
    type Output = io::Result<()>;

    fn finish(self, result: i64) -> Self::Output {
        to_io(result).map(|_| ())
    }
}

/// Sleeps in the kernel. Tasks of a [`Runtime`](crate::Runtime) have [`sleep`](crate::sleep), which needs no call.
pub fn nanosleep(duration: Duration) -> Operation<Sleeping> {
    let time = timespec(duration).to_vec();
    let arguments = [time.as_ptr().expose_provenance() as u64, 0, 0, 0, 0, 0];
    // SAFETY: the kernel only reads the time, which is on the heap and the resource's.
    unsafe { Operation::new(35, arguments, Sleeping { _time: time }) }
}

/// Output: a number that never fails.
#[derive(Debug)]
pub struct Identity;

impl Resource for Identity {
    type Output = u32;

    fn finish(self, result: i64) -> u32 {
        u32::try_from(result).unwrap_or(0)
    }
}

/// The parent process.
pub fn parent_id() -> Operation<Identity> {
    // SAFETY: touches no memory.
    unsafe { Operation::new(110, [0; 6], Identity) }
}

/// A word that threads wait on. Output: nothing; who waited looks at the word again.
#[derive(Debug)]
pub(crate) struct Word(#[expect(dead_code, reason = "kept alive for the kernel")] Arc<AtomicU32>);

impl Resource for Word {
    type Output = ();

    fn finish(self, _: i64) {}
}

const FUTEX: usize = 202;
const FUTEX_WAIT_PRIVATE: u64 = 128;
const FUTEX_WAKE_PRIVATE: u64 = 129;

/// Waits while the word has this value.
pub(crate) fn wait_on(word: &Arc<AtomicU32>, value: u32) -> Operation<Word> {
    let address = word.as_ptr().expose_provenance() as u64;
    let arguments = [address, FUTEX_WAIT_PRIVATE, u64::from(value), 0, 0, 0];
    // SAFETY: the kernel only reads the word, an atomic on the heap that the resource keeps.
    unsafe { Operation::new(FUTEX, arguments, Word(word.clone())) }
}

/// Wakes who waits on the word.
pub(crate) fn wake_word(word: &AtomicU32) {
    let address = word.as_ptr().expose_provenance() as u64;
    // SAFETY: the kernel does not touch the word.
    unsafe { trap(FUTEX, &[address, FUTEX_WAKE_PRIVATE, u64::from(u32::MAX >> 1), 0, 0, 0]) };
}

#[cfg(test)]
pub(crate) mod made {
    //! Operations for the test double, which has numbers of its own.

    use super::*;
    use crate::double::number;

    /// Arguments of which the double makes a result. Output: it.
    #[derive(Debug)]
    pub(crate) struct Plain;

    impl Resource for Plain {
        type Output = i64;

        fn finish(self, result: i64) -> i64 {
            result
        }
    }

    pub(crate) fn plain(number: usize, arguments: [u64; 6]) -> Operation<Plain> {
        // SAFETY: the double touches no memory for these numbers.
        unsafe { Operation::new(number, arguments, Plain) }
    }

    /// A buffer that the double fills with sevens, when the test releases the call.
    pub(crate) fn fill(length: usize) -> Operation<Filled> {
        let mut buffer = vec![0; length];
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        let arguments = [address, length as u64, 0, 0, 0, 0];
        // SAFETY: as for `transfer`.
        unsafe { Operation::new(number::FILL, arguments, Filled(buffer)) }
    }

    #[derive(Debug)]
    pub(crate) struct Filled(Vec<u8>);

    impl Resource for Filled {
        type Output = Vec<u8>;

        fn finish(self, _: i64) -> Vec<u8> {
            self.0
        }
    }

    /// What the kernel does for `fill`.
    pub(crate) fn carry_out_fill(call: &Call) {
        let target = std::ptr::with_exposed_provenance_mut::<u8>(call.arguments[0] as usize);
        // SAFETY: a buffer of `fill`, which is alive while its call is under way.
        unsafe { target.write_bytes(7, call.arguments[1] as usize) };
    }
}
