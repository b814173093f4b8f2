//! What is known about one sent signal: the kernel's form of `siginfo_t`.
//!
//! Only the 48 bytes that any layout of `siginfo_t` uses are kept, as four words whose meaning depends
//! on signal and code; so what `rt_sigqueueinfo` passes arrives as it was sent.

use abi::signal::{self as numbers, RawSignalInfo, Signal};
use hal::{Trap, VirtAddr};

use crate::memory::FaultSignal;

/// Vector of a page fault on x86-64, for the signal frame.
const PAGE_FAULT_VECTOR: u32 = 14;

/// One signal on its way, with who sent it and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    /// The signal.
    pub signal: Signal,
    /// `si_errno`.
    pub errno: i32,
    /// `si_code`.
    pub code: i32,
    /// The words after the header of `siginfo_t`.
    pub fields: [u64; 4],
    /// For faults: the machine's vector and error code, for the signal frame.
    pub trap: Option<TrapCode>,
}

/// What the machine said about a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrapCode {
    /// Vector.
    pub vector: u32,
    /// Error code.
    pub error: u32,
    /// Faulting address of a page fault.
    pub address: u64,
}

/// Two 32-bit fields side by side in one word.
fn pair(low: i32, high: u32) -> u64 {
    u64::from(low.cast_unsigned()) | u64::from(high) << 32
}

impl SignalInfo {
    fn plain(signal: Signal, code: i32, fields: [u64; 4]) -> SignalInfo {
        SignalInfo { signal, errno: 0, code, fields, trap: None }
    }

    /// Sent by the kernel, with nothing to say (`SI_KERNEL`).
    pub fn kernel(signal: Signal) -> SignalInfo {
        SignalInfo::plain(signal, numbers::SI_KERNEL, [0; 4])
    }

    /// Sent by `kill`, from a process and its real user.
    pub fn kill(signal: Signal, sender: i32, user: u32) -> SignalInfo {
        SignalInfo::plain(signal, numbers::SI_USER, [pair(sender, user), 0, 0, 0])
    }

    /// Sent by `tkill` or `tgkill`.
    pub fn tkill(signal: Signal, sender: i32, user: u32) -> SignalInfo {
        SignalInfo::plain(signal, numbers::SI_TKILL, [pair(sender, user), 0, 0, 0])
    }

    /// A message that `sender` sent came into an empty queue.
    pub fn message(signal: Signal, sender: i32, user: u32, value: u64) -> SignalInfo {
        SignalInfo::plain(signal, numbers::SI_MESGQ, [pair(sender, user), value, 0, 0])
    }

    /// An expiry of a timer of `timer_create`, with the value that the program chose.
    pub fn timer(signal: Signal, timer: i32, overruns: i32, value: u64) -> SignalInfo {
        let first = pair(timer, overruns.cast_unsigned());
        SignalInfo::plain(signal, numbers::SI_TIMER, [first, value, 0, 0])
    }

    /// The number of the timer that it is from, and its overruns.
    pub fn timer_and_overruns(&self) -> Option<(i32, i32)> {
        let first = self.fields[0];
        let both = ((first as u32).cast_signed(), ((first >> 32) as u32).cast_signed());
        (self.code == numbers::SI_TIMER).then_some(both)
    }

    /// Without information: what is delivered when there was no memory or no quota to keep it.
    pub fn unknown(signal: Signal) -> SignalInfo {
        SignalInfo::plain(signal, numbers::SI_USER, [0; 4])
    }

    /// A change of a child's state: `code` is `CLD_…`, `status` its exit status or signal, times in
    /// ticks of `USER_HZ`.
    pub fn child(
        code: i32,
        child: i32,
        user: u32,
        status: i32,
        user_ticks: u64,
        system_ticks: u64,
    ) -> SignalInfo {
        SignalInfo::child_with_signal(
            Signal::SIGCHLD,
            code,
            child,
            user,
            status,
            user_ticks,
            system_ticks,
        )
    }

    /// As [`SignalInfo::child`], with the exit signal that `clone` chose.
    pub fn child_with_signal(
        signal: Signal,
        code: i32,
        child: i32,
        user: u32,
        status: i32,
        user_ticks: u64,
        system_ticks: u64,
    ) -> SignalInfo {
        let fields = [pair(child, user), pair(status, 0), user_ticks, system_ticks];
        SignalInfo::plain(signal, code, fields)
    }

    /// Something happened to a file: `code` says what, `band` as `poll` would, and `descriptor` is its
    /// number with the receiver.
    pub fn file(signal: Signal, code: i32, band: u16, descriptor: i32) -> SignalInfo {
        SignalInfo::plain(signal, code, [u64::from(band), pair(descriptor, 0), 0, 0])
    }

    /// A call that the thread may not make: the address behind it, its number, the architecture, and
    /// what the filter says.
    pub fn forbidden_call(address: u64, number: i32, architecture: u32, detail: u16) -> SignalInfo {
        let fields = [address, pair(number, architecture), 0, 0];
        let info = SignalInfo::plain(Signal::SIGSYS, numbers::SYS_SECCOMP, fields);
        SignalInfo { errno: i32::from(detail), ..info }
    }

    /// A fault at an address.
    pub fn fault(signal: Signal, code: i32, address: VirtAddr, trap: TrapCode) -> SignalInfo {
        let fields = [address.0, 0, 0, 0];
        SignalInfo { signal, errno: 0, code, fields, trap: Some(trap) }
    }

    /// The signal of a processor exception other than a page fault.
    pub fn of_fault(trap: &Trap) -> SignalInfo {
        let Trap::Fault { signal, code, address, vector, error } = *trap else {
            return SignalInfo::kernel(Signal::SIGSEGV);
        };
        let signal = Signal::new(i32::from(signal)).unwrap_or(Signal::SIGSEGV);
        SignalInfo::fault(signal, code, address, TrapCode { vector, error, address: 0 })
    }

    /// The signal of a page fault that the address space could not resolve.
    pub fn of_page_fault(fault: FaultSignal, address: VirtAddr, trap: &Trap) -> SignalInfo {
        let (signal, code) = fault.signal_and_code();
        let signal = Signal::new(i32::from(signal)).unwrap_or(Signal::SIGSEGV);
        let error = match *trap {
            Trap::PageFault { write, execute, present, by_key, .. } => {
                let access = u32::from(write) << 1 | 4 | u32::from(execute) << 4;
                u32::from(present) | access | u32::from(by_key) << 5
            }
            _ => 0,
        };
        let trap = TrapCode { vector: PAGE_FAULT_VECTOR, error, address: address.0 };
        SignalInfo::fault(signal, code, address, trap)
    }

    /// Whether the kernel itself sent it, and not a program.
    pub fn is_from_kernel(&self) -> bool {
        self.code > numbers::SI_USER
    }

    /// Whether a fault of the receiving thread caused it.
    pub fn is_synchronous(&self) -> bool {
        self.is_from_kernel() && numbers::SignalSet::SYNCHRONOUS.contains(self.signal)
    }

    /// As the user sees it.
    pub fn encode(&self) -> RawSignalInfo {
        RawSignalInfo {
            signal: self.signal.number(),
            errno: self.errno,
            code: self.code,
            padding: 0,
            fields: self.fields,
            rest: [0; 10],
        }
    }

    /// From what a program passed, for the signal that it named.
    pub fn decode(signal: Signal, raw: &RawSignalInfo) -> SignalInfo {
        SignalInfo { signal, errno: raw.errno, code: raw.code, fields: raw.fields, trap: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_decodes_to_the_same() {
        let info = SignalInfo::child(numbers::CLD_EXITED, 7, 1000, 3, 11, 12);
        assert_eq!(SignalInfo::decode(info.signal, &info.encode()), info);
    }

    #[test]
    fn a_page_fault_reports_its_error_bits() {
        let address = VirtAddr(0x10);
        let trap =
            Trap::PageFault { address, write: true, execute: false, present: false, by_key: false };
        let info = SignalInfo::of_page_fault(FaultSignal::NotMapped, address, &trap);
        assert_eq!(info.trap, Some(TrapCode { vector: 14, error: 6, address: 0x10 }));
        assert_eq!(info.encode().fields[0], 0x10);
    }

    #[test]
    fn only_kernel_faults_are_synchronous() {
        assert!(!SignalInfo::kill(Signal::SIGSEGV, 1, 0).is_synchronous());
        assert!(SignalInfo::kernel(Signal::SIGSEGV).is_synchronous());
        assert!(!SignalInfo::kernel(Signal::SIGTERM).is_synchronous());
    }
}
