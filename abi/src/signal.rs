//! Signals of the Linux ABI: numbers, sets, flags, codes and the structures that cross the boundary.
//!
//! Plain data only; what a signal does is the kernel's business. Structures are those of 64-bit
//! Linux; what differs between architectures (the signal frame) is in `arch`.

use core::fmt;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of signals, real-time ones included.
pub const SIGNAL_COUNT: usize = 64;
/// First real-time signal.
pub const SIGRTMIN: u8 = 32;

/// A valid signal number, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Signal {
            $(#[doc = $text] pub const $name: Signal = Signal($value);)*

            /// The symbolic name of a standard signal, `SIGRT` for a real-time one.
            pub const fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "SIGRT" }
            }
        }
    };
}

signals! {
    SIGHUP = 1, "Hangup of the controlling terminal.";
    SIGINT = 2, "Interrupt from the keyboard.";
    SIGQUIT = 3, "Quit from the keyboard.";
    SIGILL = 4, "Illegal instruction.";
    SIGTRAP = 5, "Trace or breakpoint trap.";
    SIGABRT = 6, "Abort.";
    SIGBUS = 7, "Bad memory access behind a mapping.";
    SIGFPE = 8, "Arithmetic fault.";
    SIGKILL = 9, "Kill; cannot be caught.";
    SIGUSR1 = 10, "First user-defined signal.";
    SIGSEGV = 11, "Invalid memory reference.";
    SIGUSR2 = 12, "Second user-defined signal.";
    SIGPIPE = 13, "Write to a pipe without readers.";
    SIGALRM = 14, "Timer of `alarm` or `setitimer`.";
    SIGTERM = 15, "Termination.";
    SIGSTKFLT = 16, "Stack fault of a coprocessor; unused.";
    SIGCHLD = 17, "A child stopped, continued or ended.";
    SIGCONT = 18, "Continue if stopped.";
    SIGSTOP = 19, "Stop; cannot be caught.";
    SIGTSTP = 20, "Stop from the keyboard.";
    SIGTTIN = 21, "Terminal input for a background process.";
    SIGTTOU = 22, "Terminal output of a background process.";
    SIGURG = 23, "Urgent data on a socket.";
    SIGXCPU = 24, "Processor time limit.";
    SIGXFSZ = 25, "File size limit.";
    SIGVTALRM = 26, "Virtual interval timer.";
    SIGPROF = 27, "Profiling interval timer.";
    SIGWINCH = 28, "The window changed its size.";
    SIGIO = 29, "Input or output is possible.";
    SIGPWR = 30, "Power failure.";
    SIGSYS = 31, "Bad system call.";
}

impl Signal {
    /// The signal of this number, if there is one.
    pub const fn new(number: i32) -> Option<Signal> {
        if number >= 1 && number <= SIGNAL_COUNT as i32 { Some(Signal(number as u8)) } else { None }
    }

    /// The number, 1 to 64.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// The number as an index from 0 to 63.
    pub const fn index(self) -> usize {
        (self.0 - 1) as usize
    }

    /// The bit of this signal in a set.
    pub const fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }

    /// Whether it is a real-time signal: several of the same number queue up.
    pub const fn is_real_time(self) -> bool {
        self.0 >= SIGRTMIN
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// A set of signals, laid out as the kernel's `sigset_t` (8 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// Bytes of a set; what calls expect as `sigsetsize`.
    pub const SIZE: u64 = 8;
    /// No signal.
    pub const EMPTY: SignalSet = SignalSet(0);
    /// Every signal.
    pub const ALL: SignalSet = SignalSet(!0);
    /// Those that can be neither blocked, nor caught, nor ignored.
    pub const UNBLOCKABLE: SignalSet = SignalSet(Signal::SIGKILL.bit() | Signal::SIGSTOP.bit());
    /// Those whose default action stops the process.
    pub const STOPPING: SignalSet = SignalSet(
        Signal::SIGSTOP.bit()
            | Signal::SIGTSTP.bit()
            | Signal::SIGTTIN.bit()
            | Signal::SIGTTOU.bit(),
    );
    /// Those that a fault of the running thread raises; they are delivered before all others.
    pub const SYNCHRONOUS: SignalSet = SignalSet(
        Signal::SIGSEGV.bit()
            | Signal::SIGBUS.bit()
            | Signal::SIGILL.bit()
            | Signal::SIGTRAP.bit()
            | Signal::SIGFPE.bit()
            | Signal::SIGSYS.bit(),
    );
    /// Those whose default action is to do nothing (`SIGCONT` has continued the process already
    /// when it was sent).
    pub const IGNORED_BY_DEFAULT: SignalSet = SignalSet(
        Signal::SIGCHLD.bit()
            | Signal::SIGCONT.bit()
            | Signal::SIGURG.bit()
            | Signal::SIGWINCH.bit(),
    );
    /// The set of one signal.
    pub const fn of(signal: Signal) -> SignalSet {
        SignalSet(signal.bit())
    }

    /// Whether the signal is in the set.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & signal.bit() != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a signal.
    pub fn insert(&mut self, signal: Signal) {
        self.0 |= signal.bit();
    }

    /// Takes a signal out.
    pub fn remove(&mut self, signal: Signal) {
        self.0 &= !signal.bit();
    }

    /// The set without those of `other`.
    pub const fn without(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & !other.0)
    }

    /// The signal of the lowest number.
    pub const fn lowest(self) -> Option<Signal> {
        if self.0 == 0 { None } else { Signal::new(self.0.trailing_zeros() as i32 + 1) }
    }
}

impl BitOr for SignalSet {
    type Output = SignalSet;
    fn bitor(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }
}

impl BitOrAssign for SignalSet {
    fn bitor_assign(&mut self, other: SignalSet) {
        self.0 |= other.0;
    }
}

impl BitAnd for SignalSet {
    type Output = SignalSet;
    fn bitand(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & other.0)
    }
}

impl BitAndAssign for SignalSet {
    fn bitand_assign(&mut self, other: SignalSet) {
        self.0 &= other.0;
    }
}

impl Not for SignalSet {
    type Output = SignalSet;
    fn not(self) -> SignalSet {
        SignalSet(!self.0)
    }
}

impl fmt::Debug for SignalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalSet({:#018x})", self.0)
    }
}

/// `how` of `rt_sigprocmask`: add to the mask.
pub const SIG_BLOCK: i32 = 0;
/// `how` of `rt_sigprocmask`: take out of the mask.
pub const SIG_UNBLOCK: i32 = 1;
/// `how` of `rt_sigprocmask`: replace the mask.
pub const SIG_SETMASK: i32 = 2;

/// Handler value: default action.
pub const SIG_DFL: u64 = 0;
/// Handler value: ignore.
pub const SIG_IGN: u64 = 1;

/// No `SIGCHLD` when a child stops or continues.
pub const SA_NOCLDSTOP: u64 = 0x1;
/// Children do not become zombies.
pub const SA_NOCLDWAIT: u64 = 0x2;
/// The handler takes three arguments.
pub const SA_SIGINFO: u64 = 0x4;
/// Tells whether unknown flags are cleared; never kept.
pub const SA_UNSUPPORTED: u64 = 0x400;
/// Tag bits of `si_addr` are kept; no effect on x86-64.
pub const SA_EXPOSE_TAGBITS: u64 = 0x800;
/// `restorer` is valid.
pub const SA_RESTORER: u64 = 0x0400_0000;
/// Run the handler on the alternate stack.
pub const SA_ONSTACK: u64 = 0x0800_0000;
/// Restart an interrupted call.
pub const SA_RESTART: u64 = 0x1000_0000;
/// Do not block the signal while its handler runs.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// Reset to the default when the handler starts.
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// The flags that are kept.
pub const SA_KNOWN: u64 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;

/// `struct signalfd_siginfo`: what a read from a signalfd gives for each signal.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SignalFdRecord {
    /// The signal.
    pub signal: u32,
    /// `si_errno`.
    pub errno: i32,
    /// `si_code`.
    pub code: i32,
    /// The sender.
    pub process: u32,
    /// Its real user.
    pub user: u32,
    /// Descriptor of `SIGIO`.
    pub descriptor: i32,
    /// Number of a timer.
    pub timer: u32,
    /// Events of `SIGIO`.
    pub band: u32,
    /// Overruns of a timer.
    pub overrun: u32,
    /// Number of a trap.
    pub trap: u32,
    /// Status or signal of a child.
    pub status: i32,
    /// The value that the sender chose, as a number.
    pub int: i32,
    /// The same as an address.
    pub pointer: u64,
    /// User time of a child.
    pub user_time: u64,
    /// System time of a child.
    pub system_time: u64,
    /// Address of a fault.
    pub address: u64,
    /// Up to 128 bytes.
    pub rest: [u32; 12],
}

/// The kernel's `struct sigaction`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or the handler's address.
    pub handler: u64,
    /// `SA_…`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Blocked while the handler runs.
    pub mask: SignalSet,
}

/// `stack_t`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AlternateStack {
    /// Lowest address.
    pub base: u64,
    /// `SS_…`.
    pub flags: i32,
    /// Padding.
    pub padding: u32,
    /// Bytes.
    pub size: u64,
}

/// The thread runs on its alternate stack.
pub const SS_ONSTACK: i32 = 1;
/// There is no alternate stack.
pub const SS_DISABLE: i32 = 2;
/// The alternate stack is switched off while a handler runs.
pub const SS_AUTODISARM: i32 = i32::MIN;
/// Smallest alternate stack by the traditional definition.
pub const MINSIGSTKSZ: u64 = 2048;

/// `si_code`: `kill`.
pub const SI_USER: i32 = 0;
/// `SIGSYS`: a filter forbids the call.
pub const SYS_SECCOMP: i32 = 1;
/// `si_code`: the kernel.
pub const SI_KERNEL: i32 = 0x80;
/// Something happened to a file, for signals whose own codes mean something else.
pub const SI_SIGIO: i32 = -5;
/// `si_code`: `sigqueue`.
pub const SI_QUEUE: i32 = -1;
/// `si_code`: a POSIX timer.
pub const SI_TIMER: i32 = -2;
/// `si_code`: a message came into an empty queue.
pub const SI_MESGQ: i32 = -3;
/// `si_code`: `tkill` or `tgkill`.
pub const SI_TKILL: i32 = -6;
/// `si_code` of `SIGTRAP`: one instruction was carried out.
pub const TRAP_TRACE: i32 = 2;
/// `si_code` of `SIGCHLD`: ended.
pub const CLD_EXITED: i32 = 1;
/// `si_code` of `SIGCHLD`: killed.
pub const CLD_KILLED: i32 = 2;
/// `si_code` of `SIGCHLD`: killed with a core dump.
pub const CLD_DUMPED: i32 = 3;
/// `si_code` of `SIGCHLD`: a traced child trapped.
pub const CLD_TRAPPED: i32 = 4;
/// `si_code` of `SIGCHLD`: stopped.
pub const CLD_STOPPED: i32 = 5;
/// `si_code` of `SIGCHLD`: continued.
pub const CLD_CONTINUED: i32 = 6;
/// `si_code` of `SIGSEGV`: nothing is mapped there.
pub const SEGV_MAPERR: i32 = 1;
/// `si_code` of `SIGSEGV`: not permitted.
pub const SEGV_ACCERR: i32 = 2;
/// `si_code` of `SIGBUS`: bad alignment.
pub const BUS_ADRALN: i32 = 1;
/// `si_code` of `SIGBUS`: nothing behind the mapping.
pub const BUS_ADRERR: i32 = 2;
/// `si_code` of `SIGILL`: illegal operand.
pub const ILL_ILLOPN: i32 = 2;
/// `si_code` of `SIGFPE`: integer division by zero.
pub const FPE_INTDIV: i32 = 1;

/// `siginfo_t`: the header, and the fields whose meaning depends on signal and code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawSignalInfo {
    /// Signal number.
    pub signal: i32,
    /// Always 0 from the kernel.
    pub errno: i32,
    /// Why it was sent.
    pub code: i32,
    /// Padding.
    pub padding: u32,
    /// The fields that some layout uses.
    pub fields: [u64; 4],
    /// Up to the 128 bytes of the structure.
    pub rest: [u64; 10],
}

const _: () = assert!(size_of::<RawSignalInfo>() == 128);
const _: () = assert!(size_of::<AlternateStack>() == 24);
const _: () = assert!(size_of::<Action>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_from_1_to_64_are_signals() {
        assert!(Signal::new(0).is_none() && Signal::new(65).is_none() && Signal::new(-1).is_none());
        assert_eq!(Signal::new(64).map(Signal::index), Some(63));
    }

    #[test]
    fn the_lowest_of_a_set_is_found() {
        let set = SignalSet::of(Signal::SIGTERM) | SignalSet::of(Signal::SIGHUP);
        assert_eq!(set.lowest(), Some(Signal::SIGHUP));
        assert_eq!(SignalSet::EMPTY.lowest(), None);
        assert_eq!(SignalSet(1 << 63).lowest().map(Signal::number), Some(64));
    }
}
