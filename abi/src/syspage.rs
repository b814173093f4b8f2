//! The contract of posted system calls: the syspage, the control page and the notification page.
//!
//! `docs/abi/syspage.md` is the page for people; this is the same for compilers. Layouts are asserted
//! at compile time. Numbers of the Ferry calls lie in a range that Linux does not use, so that they
//! answer `ENOSYS` there.

/// Version of the layouts. A kernel refuses to register a syspage of a version that it does not have.
pub const VERSION: u32 = 1;

/// Entries of a syspage.
pub const ENTRY_COUNT: usize = 64;

/// Values of an entry's status.
pub mod status {
    /// The user's: nothing is in it.
    pub const FREE: u32 = 0;
    /// The kernel's: a call was posted.
    pub const SUBMITTED: u32 = 1;
    /// The user's: the result is there.
    pub const DONE: u32 = 2;
}

/// Flag of an entry: it begins only after the entry before it is done.
pub const FLAG_LINK: u8 = 1;

/// One posted call. The user writes everything but the result, the status last and with release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Entry {
    /// One of [`status`].
    pub status: u32,
    /// Number of the call.
    pub number: u16,
    /// `FLAG_LINK` or 0; the kernel answers `EINVAL` to other bits.
    pub flags: u8,
    /// Set by a user that goes past this entry because it is still in use: [`pass_mark`]. 0 otherwise.
    pub pass: u8,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The answer, as a trap would have left it in the result register.
    pub result: i64,
}

/// The mark with which the user passes an entry at `position`, its count of entries posted and passed
/// since registration.
pub const fn pass_mark(position: u32) -> u8 {
    1 + (position / ENTRY_COUNT as u32 % 2) as u8
}

/// What the kernel tells the user. Mapped read-only; the parts that change lie on lines of their own.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct ControlPage {
    /// [`VERSION`].
    pub version: u32,
    /// Bits of [`feature`].
    pub features: u32,
    /// Not 0: nobody looks at the syspage now. Trap with `ferry_wait` after posting.
    pub parked: u32,
    /// `ENTRY_COUNT`.
    pub entry_count: u32,
    /// Syspages that one process may have.
    pub syspage_limit: u32,
    /// How often a waiting user should look at a status before it traps.
    pub spin_limit: u32,
    /// Address of the entries.
    pub entries: u64,
    /// For Ferry's own trampoline: its table of patched sites.
    pub sites: u64,
    /// For the same: where it is.
    pub trampoline: u64,
    /// For later versions.
    pub reserved: [u64; 2],
    /// Bit n % 64 of word n / 64: call n may be posted.
    pub permitted: [u64; 8],
    /// Entries that the kernel has taken or passed since registration.
    pub head: u32,
}

/// Bits of `ControlPage::features`.
pub mod feature {
    /// A core that is not the caller's looks for posted calls. Without it, posting is correct but every
    /// wait is a trap.
    pub const SCANNED: u32 = 1;
}

/// Words that the user may write, on a page of their own behind the control page.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct NotificationPage {
    /// Bits of [`notification`] that became true; set by the kernel, cleared by the user, both
    /// atomically.
    pub pending: u64,
    /// Bits that the user wants to be set.
    pub armed: u64,
    /// For Ferry's own trampoline: entries posted so far.
    pub position: u32,
}

/// Bits of the notification word.
pub mod notification {
    /// Some entry is done.
    pub const COMPLETED: u64 = 1;
}

/// Numbers of the calls that Ferry adds.
pub mod call {
    /// `ferry_register(version, syspage, flags)` answers the address of the control page.
    pub const REGISTER: usize = 500;
    /// `ferry_unregister()`.
    pub const UNREGISTER: usize = 501;
    /// `ferry_wait(mode, index, timeout)`.
    pub const WAIT: usize = 502;
    /// `ferry_cancel(index)`.
    pub const CANCEL: usize = 503;
    /// `ferry_finish()`: for Ferry's own trampoline alone.
    pub const FINISH: usize = 504;
}

/// First argument of `ferry_wait`.
pub mod wait_mode {
    /// Make sure that the entries that were posted are looked at; do not wait.
    pub const SUBMIT: u64 = 0;
    /// Wait until some entry is done. Answers its index.
    pub const ANY: u64 = 1;
    /// Wait until no entry is submitted.
    pub const ALL: u64 = 2;
    /// Wait until the entry of the second argument is done.
    pub const ONE: u64 = 3;
}

/// Error number in an entry, negated, when the call may not be posted: trap for it. Above the errors
/// of Linux and within the range that C libraries take for errors.
pub const MUST_TRAP: i32 = 600;

const _: () = {
    assert!(size_of::<Entry>() == 64 && align_of::<Entry>() == 64);
    assert!(size_of::<Entry>() * ENTRY_COUNT == 4096);
    assert!(core::mem::offset_of!(Entry, number) == 4);
    assert!(core::mem::offset_of!(Entry, flags) == 6);
    assert!(core::mem::offset_of!(Entry, pass) == 7);
    assert!(core::mem::offset_of!(Entry, arguments) == 8);
    assert!(core::mem::offset_of!(Entry, result) == 56);
    assert!(size_of::<ControlPage>() == 4096);
    assert!(core::mem::offset_of!(ControlPage, parked) == 8);
    assert!(core::mem::offset_of!(ControlPage, spin_limit) == 20);
    assert!(core::mem::offset_of!(ControlPage, permitted) == 64);
    assert!(core::mem::offset_of!(ControlPage, head) == 128);
    assert!(size_of::<NotificationPage>() == 4096);
    assert!(core::mem::offset_of!(NotificationPage, armed) == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_neighbouring_laps_differ_and_are_never_zero() {
        for lap in 0..8 {
            let (here, next) = (pass_mark(lap * 64 + 63), pass_mark((lap + 1) * 64));
            assert!(here != next && here != 0 && next != 0);
        }
    }
}
