//! Making and ending descriptors: open, close, dup, pipe, memfd_create.

use core::future::poll_fn;
use core::task::Poll;

use abi::Errno;
use abi::fs::*;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::sync::Once;
use base::wait::{Kind, Target};
use fs::file::RegularFile;
use fs::inode::FileSystem;
use fs::mount::Mount;
use fs::open::{self, Request};
use fs::poll::PollTable;
use fs::tmpfs::{Options, TmpFs};
use fs::walk::Resolve;
use fs::{Location, OpenFile};

use super::support::{Start, path};
use super::{fanotify, lease};
use crate::call::{Call, SysResult, in_turns};
use crate::process::file_table::Closed;
use crate::process::{Interrupted, Resource, mapped};

/// One past the largest descriptor that the caller may have.
pub fn descriptor_limit(call: &Call) -> u64 {
    call.process().limits.soft(Resource::Files)
}

/// A descriptor as a return value.
fn number(descriptor: i32) -> u64 {
    u64::try_from(descriptor).unwrap_or(0)
}

pub async fn open(call: &Call) -> SysResult {
    open_at(call, AT_FDCWD, 0, call.unsigned(1), call.unsigned(2)).await
}

pub async fn creat(call: &Call) -> SysResult {
    let flags = OpenFlags::CREAT | OpenFlags::WRONLY | OpenFlags::TRUNC;
    open_at(call, AT_FDCWD, 0, flags.bits(), call.unsigned(1)).await
}

pub async fn openat(call: &Call) -> SysResult {
    open_at(call, call.int(0), 1, call.unsigned(2), call.unsigned(3)).await
}

async fn open_at(call: &Call, directory: i32, index: usize, flags: u32, mode: u32) -> SysResult {
    // As Linux does for 64-bit programs; `O_PATH` drops it again.
    let mut flags = flags | OpenFlags::LARGEFILE.bits();
    // It beats everything else, flags that contradict one another too.
    if flags & OpenFlags::PATH.bits() != 0 {
        let kept =
            OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
        flags &= kept.bits();
    }
    let request = Request::new(flags, mode, call.thread.directory().umask())?;
    let path = path(call, index).await?;
    open_path(call, directory, &path, request).await
}

/// `struct open_how`: flags, mode, resolve.
type OpenHow = [u64; 3];

const RESOLVE_NO_XDEV: u64 = 1;
const RESOLVE_NO_MAGICLINKS: u64 = 2;
const RESOLVE_NO_SYMLINKS: u64 = 4;
const RESOLVE_BENEATH: u64 = 8;
const RESOLVE_IN_ROOT: u64 = 16;
const RESOLVE_CACHED: u64 = 32;

pub async fn openat2(call: &Call) -> SysResult {
    let size = call.argument(3);
    if size < size_of::<OpenHow>() as u64 {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let user = call.user();
    let length = usize::try_from(size).map_err(|_| Errno::E2BIG)?;
    let bytes = user.read_vector(call.argument(2), length).await?;
    let mut words =
        bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or(0));
    let [flags, mode, resolve] = [words.next(), words.next(), words.next()].map(|w| w.unwrap_or(0));
    if bytes.iter().skip(size_of::<OpenHow>()).any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    let known = RESOLVE_NO_XDEV
        | RESOLVE_NO_MAGICLINKS
        | RESOLVE_NO_SYMLINKS
        | RESOLVE_BENEATH
        | RESOLVE_IN_ROOT
        | RESOLVE_CACHED;
    let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
    let parsed = OpenFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let creates = parsed.intersects(OpenFlags::CREAT | OpenFlags::TMPFILE_BIT);
    let both = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
    if resolve & !known != 0
        || resolve & both == both
        || mode & !0o7777 != 0
        || (mode != 0 && !creates)
    {
        return Err(Errno::EINVAL);
    }
    if resolve & RESOLVE_CACHED != 0 {
        return Err(Errno::EAGAIN);
    }
    let path_flags =
        OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
    if parsed.contains(OpenFlags::PATH) && !path_flags.contains(parsed) {
        return Err(Errno::EINVAL);
    }
    let mode = u32::try_from(mode).map_err(|_| Errno::EINVAL)?;
    let mut request = Request::new(flags, mode, call.thread.directory().umask())?;
    request.resolve = Resolve {
        beneath: resolve & RESOLVE_BENEATH != 0,
        in_root: resolve & RESOLVE_IN_ROOT != 0,
        no_crossing: resolve & RESOLVE_NO_XDEV != 0,
        no_links: resolve & RESOLVE_NO_SYMLINKS != 0,
        no_magic_links: resolve & RESOLVE_NO_MAGICLINKS != 0,
    };
    let path = path(call, 1).await?;
    // In a root of one's own an absolute path starts at the descriptor too.
    if request.resolve.in_root && path.first() == Some(&b'/') {
        let relative: Vec<u8> = [b".", path.as_slice()].concat();
        return open_path(call, call.int(0), &relative, request).await;
    }
    open_path(call, call.int(0), &path, request).await
}

async fn open_path(call: &Call, directory: i32, path: &[u8], request: Request) -> SysResult {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let close_on_exec = request.flags.contains(OpenFlags::CLOEXEC);
    let reservation = call.thread.files().reserve(close_on_exec, descriptor_limit(call))?;
    let start = Start::new(call, directory, path)?;
    fanotify::ask_before_open(call, start.lookup(), path, request).await?;
    lease::give_way(call, start.lookup(), path, request).await?;
    let opened = open::open(start.lookup(), path, request, &**call.thread);
    if request.flags.contains(OpenFlags::TRUNC) {
        mapped::settled(&call.thread).await;
    }
    let file = opened?;
    wait_until_open(call, &file, request.flags).await?;
    Ok(number(reservation.install(file)))
}

/// Waits for the other end of a FIFO.
pub(super) async fn wait_until_open(
    call: &Call,
    file: &OpenFile,
    flags: OpenFlags,
) -> Result<(), Errno> {
    if flags.contains(OpenFlags::PATH) || file.file().finish_open(flags, None)? {
        return Ok(());
    }
    let mut registrations = Vec::new();
    let wait = poll_fn(|context| {
        registrations.clear();
        let target = Target::Waker(context.waker().clone());
        let wanted = PollEvents::all();
        let mut table = PollTable::new(Kind::Watcher, wanted, &target, &mut registrations);
        match file.file().finish_open(flags, Some(&mut table)) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    });
    match call.thread.interruptible(wait).await {
        Ok(result) => result,
        Err(Interrupted) => Err(Errno::ERESTARTSYS),
    }
}

pub fn close(call: &Call) -> SysResult {
    call.thread.files().close(call.int(0))?;
    Ok(0)
}

pub async fn close_range(call: &Call) -> SysResult {
    let (first, last, flags) = (call.unsigned(0), call.unsigned(1), call.unsigned(2));
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    let marks = flags & CLOSE_RANGE_CLOEXEC != 0;
    let mut files = call.thread.files();
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        // What is closed anyway need not be copied.
        let end = if marks || last < i32::MAX.unsigned_abs() { u32::MAX } else { first };
        files = Arc::new(files.duplicate_in_turns(end).await?);
        drop(call.thread.set_files(files.clone()));
    }
    if marks {
        files.mark_range_close_on_exec(first, last);
    } else {
        let part = |next| Ok(files.close_part(next as u32, last, Closed::All).map(u64::from));
        in_turns(&call.thread, u64::from(first), part).await?;
    }
    Ok(0)
}

pub fn dup(call: &Call) -> SysResult {
    let file = call.file(0)?;
    call.thread.files().insert(file, false, descriptor_limit(call)).map(number)
}

pub fn dup2(call: &Call) -> SysResult {
    let (old, new) = (call.int(0), call.int(1));
    if old == new {
        call.file(0)?;
        return Ok(number(new));
    }
    duplicate_to(call, new, false)
}

pub fn dup3(call: &Call) -> SysResult {
    let (old, new, flags) = (call.int(0), call.int(1), call.unsigned(2));
    if flags & !OpenFlags::CLOEXEC.bits() != 0 || old == new {
        return Err(Errno::EINVAL);
    }
    duplicate_to(call, new, flags != 0)
}

fn duplicate_to(call: &Call, new: i32, close_on_exec: bool) -> SysResult {
    let limit = descriptor_limit(call);
    if u64::try_from(new).map_or(true, |new| new >= limit) {
        return Err(Errno::EBADF);
    }
    let file = call.file(0)?;
    call.thread.files().replace(new, file, close_on_exec, limit)?;
    Ok(number(new))
}

/// `F_DUPFD` and `F_DUPFD_CLOEXEC`.
pub fn duplicate_from(
    call: &Call,
    file: Arc<OpenFile>,
    minimum: u64,
    close_on_exec: bool,
) -> SysResult {
    let limit = descriptor_limit(call);
    let minimum = i32::try_from(minimum).map_err(|_| Errno::EINVAL)?;
    if minimum < 0 || u64::try_from(minimum).unwrap_or(u64::MAX) >= limit {
        return Err(Errno::EINVAL);
    }
    call.thread.files().insert_from(minimum, file, close_on_exec, limit).map(number)
}

/// Gives an open file the lowest free descriptor.
pub fn install(call: &Call, file: Arc<OpenFile>, close_on_exec: bool) -> SysResult {
    call.thread.files().insert(file, close_on_exec, descriptor_limit(call)).map(number)
}

/// `pipe`.
pub async fn pipe(call: &Call) -> SysResult {
    make_pipe(call, OpenFlags::empty()).await
}

/// `pipe2`.
pub async fn pipe2(call: &Call) -> SysResult {
    let permitted = OpenFlags::CLOEXEC | OpenFlags::NONBLOCK | OpenFlags::DIRECT;
    let flags = OpenFlags::from_bits(call.unsigned(1)).ok_or(Errno::EINVAL)?;
    if !permitted.contains(flags) {
        return Err(Errno::EINVAL);
    }
    make_pipe(call, flags).await
}

async fn make_pipe(call: &Call, flags: OpenFlags) -> SysResult {
    let files = call.thread.files();
    let limit = descriptor_limit(call);
    let close_on_exec = flags.contains(OpenFlags::CLOEXEC);
    let read_end = files.reserve(close_on_exec, limit)?;
    let write_end = files.reserve(close_on_exec, limit)?;
    let (reader, writer) = fs::pipe::pipe(flags, &call.thread.identity())?;
    let pair = [read_end.descriptor(), write_end.descriptor()];
    call.user().write_value(call.argument(0), &pair).await?;
    read_end.install(reader);
    write_end.install(writer);
    Ok(0)
}

/// The invisible tmpfs of memory files.
static MEMORY_FILES: Once<Option<(Arc<TmpFs>, Arc<Mount>)>> = Once::new();

pub async fn memfd_create(call: &Call) -> SysResult {
    let flags = call.unsigned(1);
    let known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC;
    let both = MFD_EXEC | MFD_NOEXEC_SEAL;
    let is_huge = flags & MFD_HUGETLB != 0;
    let sizes = if is_huge { MFD_HUGETLB | MFD_HUGE_SIZES } else { 0 };
    if flags & !(known | sizes) != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    const LONGEST_NAME: usize = NAME_MAX - b"memfd:".len();
    let name = match call.user().read_string(call.argument(0), LONGEST_NAME + 1).await {
        Err(Errno::ENAMETOOLONG) => return Err(Errno::EINVAL),
        result => result?,
    };
    if is_huge {
        // What a kernel without huge pages answers.
        return Err(Errno::ENOSYS);
    }
    let home = MEMORY_FILES.call_once(|| {
        let file_system = TmpFs::new(&Options::default()).ok()?;
        let as_any: Arc<dyn FileSystem> = file_system.clone();
        Some((file_system, Mount::detached(as_any, "tmpfs", 0)))
    });
    let (file_system, mount) = home.as_ref().ok_or(Errno::ENOMEM)?;
    let mut seals = Seals::SEAL;
    let mut mode = 0o777;
    if flags & MFD_ALLOW_SEALING != 0 {
        seals = Seals::empty();
    }
    if flags & MFD_NOEXEC_SEAL != 0 {
        seals = Seals::EXEC;
        mode = 0o666;
    }
    let label = format!("/memfd:{} (deleted)", String::from_utf8_lossy(&name));
    let identity = call.thread.identity();
    let inode = file_system.memory_file(label, seals, mode, identity.user, identity.group)?;
    let location = Location { mount: mount.clone(), inode: inode.clone() };
    let status = OpenFlags::RDWR | OpenFlags::LARGEFILE;
    let file = OpenFile::new(Arc::new(RegularFile::new(inode)), location, status)?;
    install(call, file, flags & MFD_CLOEXEC != 0)
}
