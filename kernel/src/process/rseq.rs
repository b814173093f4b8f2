//! Restartable sequences (`rseq`): a thread says where it wants to read which core it is on, and which
//! piece of its code must not be interrupted. A piece that was is left at its abort address.
//!
//! ```text
//! record (32 bytes, aligned)             description of a critical section (32 bytes)
//!   0 core, when the section began         0 version, 0
//!   4 core                                 4 flags, 0
//!   8 address of the description, or 0    16 length from the start to the last instruction
//!  16 flags, 0                             8 start      24 abort address; the signature stands before it
//! ```
//!
//! The record is looked at when the thread is about to enter user mode and was out of it without having
//! asked: after preemption, migration, a fault that waited, a signal, or `membarrier`. A thread that only
//! makes calls on the core that the record names passes two loads. Only the thread itself changes its
//! registration; others set `due`.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::signal::Signal;
use alloc::sync::Arc;
use base::cpu::CpuId;
use base::user::UserContext;
use hal::UserContext as _;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::thread::Thread;
use crate::call::{Call, SysResult};
use crate::memory::{USER_END, UserMemory, is_user_range};
use crate::signal::{self, SignalInfo};

/// Bytes of the record, which is aligned to as many.
const RECORD_SIZE: u64 = 32;
/// The only flag of the call.
const UNREGISTER: u32 = 1;
/// Where the description's address is in the record.
const SECTION_AT: u64 = 8;
/// Where the record's flags are.
const FLAGS_AT: u64 = 16;
/// The core of a record that nobody keeps up to date.
const UNINITIALISED: u32 = u32::MAX;
/// Bytes of the signature before an abort address.
const SIGNATURE_SIZE: u64 = 4;
/// No core was written yet.
const NEVER: u32 = u32::MAX;

/// The registration of a thread.
#[derive(Debug)]
pub struct RestartableSequence {
    /// Address of the record; 0 for none.
    address: AtomicU64,
    signature: AtomicU32,
    /// The core that the record has.
    core: AtomicU32,
    /// A critical section may have been interrupted.
    due: AtomicBool,
}

/// `struct rseq_cs`
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Section {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

impl Section {
    /// Whether it is one that can be carried out.
    fn is_valid(&self) -> bool {
        let end = self.start.checked_add(self.length);
        self.version == 0
            && self.flags == 0
            && end.is_some_and(|end| end < USER_END)
            && (SIGNATURE_SIZE..USER_END).contains(&self.abort)
            && !self.contains(self.abort)
    }

    fn contains(&self, instruction: u64) -> bool {
        instruction.wrapping_sub(self.start) < self.length
    }
}

impl RestartableSequence {
    /// Of a thread that has none.
    pub fn new() -> RestartableSequence {
        RestartableSequence {
            address: AtomicU64::new(0),
            signature: AtomicU32::new(0),
            core: AtomicU32::new(NEVER),
            due: AtomicBool::new(false),
        }
    }

    /// A child with a copy of the memory has the registration of its parent.
    pub fn take_over(&self, parent: &RestartableSequence) {
        self.signature.store(parent.signature.load(Ordering::Relaxed), Ordering::Relaxed);
        self.address.store(parent.address.load(Ordering::Relaxed), Ordering::Relaxed);
        self.due.store(true, Ordering::Relaxed);
    }

    /// A new program has none.
    pub fn forget(&self) {
        self.address.store(0, Ordering::Relaxed);
        self.signature.store(0, Ordering::Relaxed);
    }

    /// The thread may have been interrupted within a critical section.
    #[inline]
    pub fn interrupted(&self) {
        if self.address.load(Ordering::Relaxed) != 0 {
            self.due.store(true, Ordering::SeqCst);
        }
    }

    /// Address of the record, 0 for none, and signature.
    pub fn registration(&self) -> (u64, u32) {
        (self.address.load(Ordering::Relaxed), self.signature.load(Ordering::Relaxed))
    }

    /// Whether the record must be looked at before the thread enters user mode on this core.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.address.load(Ordering::Relaxed) != 0
            && (self.core.load(Ordering::Relaxed) != here() || self.due.load(Ordering::SeqCst))
    }
}

impl Default for RestartableSequence {
    fn default() -> Self {
        RestartableSequence::new()
    }
}

/// Number of this core.
fn here() -> u32 {
    CpuId::current().index() as u32
}

/// Writes the core into the record, and leaves an interrupted critical section at its abort address.
/// A record or description that is not as it must be ends the program by `SIGSEGV`.
pub async fn settle(thread: &Arc<Thread>, context: &mut UserContext) {
    let registration = &thread.sequence;
    let address = registration.address.load(Ordering::Relaxed);
    if address == 0 {
        return;
    }
    registration.due.store(false, Ordering::SeqCst);
    let core = here();
    registration.core.store(core, Ordering::Relaxed);
    let user = UserMemory::new(thread.space());
    let result = async {
        user.write_bytes(address, zerocopy::IntoBytes::as_bytes(&[core, core])).await?;
        abort_section(thread, &user, address, context).await
    };
    if result.await.is_err() {
        signal::force(thread, SignalInfo::kernel(Signal::SIGSEGV));
    }
}

/// As `settle`, of a thread that is in no critical section and whose record is there. False, and nothing is
/// settled, for any other.
pub fn settle_at_once(thread: &Thread) -> bool {
    let registration = &thread.sequence;
    let address = registration.address.load(Ordering::Relaxed);
    if address == 0 {
        return true;
    }
    registration.due.store(false, Ordering::SeqCst);
    let (core, space) = (here(), thread.space());
    let is_settled = space.word_now(address + SECTION_AT) == Some(0)
        && (registration.core.load(Ordering::Relaxed) == core
            || space.put_now(address, zerocopy::IntoBytes::as_bytes(&[core, core])));
    if is_settled {
        registration.core.store(core, Ordering::Relaxed);
    } else {
        registration.due.store(true, Ordering::SeqCst);
    }
    is_settled
}

async fn abort_section(
    thread: &Thread,
    user: &UserMemory,
    record: u64,
    context: &mut UserContext,
) -> Result<(), Errno> {
    let described_at: u64 = user.read_value(record + SECTION_AT).await?;
    if described_at == 0 {
        return Ok(());
    }
    if described_at >= USER_END {
        return Err(Errno::EINVAL);
    }
    let section: Section = user.read_value(described_at).await?;
    if !section.is_valid() {
        return Err(Errno::EINVAL);
    }
    let signature: u32 = user.read_value(section.abort - SIGNATURE_SIZE).await?;
    if signature != thread.sequence.signature.load(Ordering::Relaxed) {
        return Err(Errno::EINVAL);
    }
    let is_inside = section.contains(context.instruction_pointer());
    if is_inside && user.read_value::<u32>(record + FLAGS_AT).await? != 0 {
        return Err(Errno::EINVAL);
    }
    user.write_value(record + SECTION_AT, &0_u64).await?;
    if is_inside {
        context.set_instruction_pointer(section.abort);
    }
    Ok(())
}

/// `rseq(record, length, flags, signature)`
///
/// # Errors
/// `EINVAL` for flags, a length or an alignment that do not fit, or another record than the one in force;
/// `EPERM` for another signature than its; `EBUSY` when it is registered already; `EFAULT`.
pub async fn rseq(call: &Call) -> SysResult {
    let (address, flags, signature) = (call.argument(0), call.unsigned(2), call.unsigned(3));
    let is_size_right = u64::from(call.unsigned(1)) == RECORD_SIZE;
    let registration = &call.thread.sequence;
    let present = registration.address.load(Ordering::Relaxed);
    if flags & !UNREGISTER != 0 {
        return Err(Errno::EINVAL);
    }
    let wants_none = flags & UNREGISTER != 0;
    if present != 0 || wants_none {
        if present == 0 || present != address || !is_size_right {
            return Err(Errno::EINVAL);
        }
        if registration.signature.load(Ordering::Relaxed) != signature {
            return Err(Errno::EPERM);
        }
        if !wants_none {
            return Err(Errno::EBUSY);
        }
        let none = [0, UNINITIALISED];
        call.user().write_bytes(address, zerocopy::IntoBytes::as_bytes(&none)).await?;
        registration.forget();
        return Ok(0);
    }
    if !address.is_multiple_of(RECORD_SIZE) || !is_size_right {
        return Err(Errno::EINVAL);
    }
    if !is_user_range(address, RECORD_SIZE) {
        return Err(Errno::EFAULT);
    }
    registration.signature.store(signature, Ordering::Relaxed);
    registration.core.store(NEVER, Ordering::Relaxed);
    registration.address.store(address, Ordering::Relaxed);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: Section =
        Section { version: 0, flags: 0, start: 0x1000, length: 0x10, abort: 0x2000 };

    #[test]
    fn a_section_ends_before_its_last_address() {
        assert!(!SECTION.contains(0xfff));
        assert!(SECTION.contains(0x1000));
        assert!(SECTION.contains(0x100f));
        assert!(!SECTION.contains(0x1010));
    }

    #[test]
    fn sections_that_cannot_be_left_are_refused() {
        assert!(SECTION.is_valid());
        assert!(!Section { version: 1, ..SECTION }.is_valid());
        assert!(!Section { flags: 1, ..SECTION }.is_valid());
        assert!(!Section { abort: 0x1008, ..SECTION }.is_valid());
        assert!(!Section { abort: 0, ..SECTION }.is_valid());
        assert!(!Section { length: u64::MAX, ..SECTION }.is_valid());
        assert!(!Section { start: USER_END, ..SECTION }.is_valid());
    }
}
