//! A thread's syspage and the kernel's pages beside it.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use abi::syspage::{VERSION, call};

use super::trap;
use crate::entries::{Control, Entries};

/// The binding of a thread to its syspage. It stays on its thread: the pointers are not `Send`.
pub(crate) struct Binding {
    entries: NonNull<Entries>,
    control: NonNull<Control>,
}

const MMAP: usize = 9;
const MUNMAP: usize = 11;

impl Binding {
    /// Registers this thread. `None`: the kernel has no syspages, or none for this thread.
    pub(crate) fn new() -> Option<Binding> {
        // Private, anonymous, readable and writable, wherever there is room.
        let mapping = [0, size_of::<Entries>() as u64, 3, 0x22, u64::MAX, 0];
        // SAFETY: a new mapping touches no memory that is in use.
        let address = address_of(unsafe { trap(MMAP, &mapping) })?;
        let entries = NonNull::new(address as *mut Entries)?;
        // SAFETY: the page is ours, all bit patterns are valid entries, and everybody accesses them
        // as atomics from now on.
        let registered =
            unsafe { trap(call::REGISTER, &[u64::from(VERSION), address as u64, 0, 0, 0, 0]) };
        let control =
            address_of(registered).and_then(|address| NonNull::new(address as *mut Control));
        let Some(control) = control else {
            unmap(entries);
            return None;
        };
        Some(Binding { entries, control })
    }

    #[inline]
    pub(crate) fn entries(&self) -> &Entries {
        // SAFETY: mapped until this is dropped, and atomics throughout.
        unsafe { self.entries.as_ref() }
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: the kernel maps it until the thread unregisters, which is when this is dropped.
        // It is read-only, and only its loads are used.
        unsafe { self.control.as_ref() }
    }

    pub(crate) fn wait(&self, mode: u64, index: u32, timeout: Option<Duration>) -> i64 {
        let time = timeout.map(timespec);
        let address = time.as_ref().map_or(0, |time| time.as_ptr().expose_provenance() as u64);
        // SAFETY: the kernel only reads the time, which lives until it answers.
        unsafe { trap(call::WAIT, &[mode, u64::from(index), address, 0, 0, 0]) }
    }

    pub(crate) fn cancel(&self, index: u32) -> i64 {
        // SAFETY: the call it ends answers as it does when a signal comes.
        unsafe { trap(call::CANCEL, &[u64::from(index), 0, 0, 0, 0, 0]) }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        // SAFETY: it waits until the kernel has no call of this thread left; nobody refers to the
        // control page any more.
        unsafe { trap(call::UNREGISTER, &[0; 6]) };
        unmap(self.entries);
    }
}

/// Gives a page of entries back that the kernel does not have.
fn unmap(entries: NonNull<Entries>) {
    let page =
        [entries.as_ptr().expose_provenance() as u64, size_of::<Entries>() as u64, 0, 0, 0, 0];
    // SAFETY: the mapping was made by `new` and nobody refers to it any more.
    unsafe { trap(MUNMAP, &page) };
}

/// The address that a call answered, unless it failed.
fn address_of(result: i64) -> Option<usize> {
    usize::try_from(result).ok()
}

/// As the kernel reads it.
pub(super) fn timespec(duration: Duration) -> [i64; 2] {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    [seconds, i64::from(duration.subsec_nanos())]
}

/// Waits a moment while spinning. Under QEMU's emulation `pause` is dear, so it is left out there.
#[inline]
pub(crate) fn relax() {
    static PAUSE_IS_CHEAP: OnceLock<bool> = OnceLock::new();
    if *PAUSE_IS_CHEAP.get_or_init(|| !is_emulated()) {
        std::hint::spin_loop();
    }
}

fn is_emulated() -> bool {
    use std::arch::x86_64::__cpuid;
    if cfg!(miri) {
        return false;
    }
    let has_hypervisor = __cpuid(1).ecx >> 31 & 1 != 0;
    let vendor = __cpuid(0x4000_0000);
    let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    has_hypervisor
        && [vendor.ebx, vendor.ecx, vendor.edx] == [word(b"TCGT"), word(b"CGTC"), word(b"GTCG")]
}
