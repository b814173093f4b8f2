//! General registers of a user thread and what a Linux system call makes of them.
//!
//! Pure data, used by the hosted machine too. The order of the fields is known to the assembly in
//! `trap.rs` by `offset_of!`. Invariant: `rflags` only ever holds bits that a user may have, with
//! interrupts on, so that returning to user mode can never give away a privilege.

/// Interrupts enabled.
pub(crate) const FLAG_INTERRUPTS: u64 = 1 << 9;
/// Always set.
const FLAG_FIXED: u64 = 1 << 1;
/// What user mode may choose: CF PF AF ZF SF TF DF OF RF AC ID.
const FLAGS_OF_USER: u64 = 0x0025_0dd5;

/// How user mode is entered next.
pub(crate) const RETURN_BY_INTERRUPT_FRAME: u64 = 0;
/// After a system call rcx and r11 are lost anyway, so the short way back is allowed.
pub(crate) const RETURN_BY_SYSRET: u64 = 1;

/// Registers of a user thread as trap code saves and loads them.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) rax: u64,
    pub(crate) rbx: u64,
    pub(crate) rcx: u64,
    pub(crate) rdx: u64,
    pub(crate) rsi: u64,
    pub(crate) rdi: u64,
    pub(crate) rbp: u64,
    pub(crate) rsp: u64,
    pub(crate) r8: u64,
    pub(crate) r9: u64,
    pub(crate) r10: u64,
    pub(crate) r11: u64,
    pub(crate) r12: u64,
    pub(crate) r13: u64,
    pub(crate) r14: u64,
    pub(crate) r15: u64,
    pub(crate) rip: u64,
    pub(crate) rflags: u64,
    /// `RETURN_BY_…`
    pub(crate) return_by: u64,
    /// Vector of the last trap that was not a system call.
    pub(crate) vector: u64,
    /// Error code of that trap, 0 when it has none.
    pub(crate) error: u64,
}

/// The registers in the order of `struct sigcontext`, to be read or assigned.
macro_rules! in_sigcontext_order {
    ($registers:expr) => {
        [
            $registers.r8,
            $registers.r9,
            $registers.r10,
            $registers.r11,
            $registers.r12,
            $registers.r13,
            $registers.r14,
            $registers.r15,
            $registers.rdi,
            $registers.rsi,
            $registers.rbp,
            $registers.rbx,
            $registers.rdx,
            $registers.rax,
            $registers.rcx,
            $registers.rsp,
            $registers.rip,
            $registers.rflags,
        ]
    };
}

/// The part of `UserContext` that `registers` answers by itself, for a context with that field.
macro_rules! answered_by_registers {
    () => {
        fn call_number(&self) -> usize {
            // Only the lower half names a call.
            self.registers.rax as u32 as usize
        }

        fn call_arguments(&self) -> [u64; 6] {
            self.registers.call_arguments()
        }

        fn set_return_value(&mut self, value: u64) {
            self.registers.rax = value;
        }

        fn restart_call(&mut self, number: usize) {
            self.registers.restart_call(number);
        }

        fn instruction_pointer(&self) -> u64 {
            self.registers.rip
        }

        fn set_instruction_pointer(&mut self, value: u64) {
            self.registers.rip = value;
        }

        fn stack_pointer(&self) -> u64 {
            self.registers.rsp
        }

        fn set_stack_pointer(&mut self, value: u64) {
            self.registers.rsp = value;
        }

        fn set_c_argument(&mut self, index: usize, value: u64) {
            self.registers.set_c_argument(index, value);
        }

        fn general_registers(&self) -> [u64; 18] {
            self.registers.to_sigcontext()
        }

        fn set_general_registers(&mut self, registers: &[u64; 18]) {
            self.registers.set_from_sigcontext(registers);
        }
    };
}
pub(crate) use answered_by_registers;

impl Registers {
    pub(crate) fn new(entry: u64, stack: u64) -> Self {
        Self { rip: entry, rsp: stack, rflags: FLAG_INTERRUPTS | FLAG_FIXED, ..Self::default() }
    }

    pub(crate) fn call_arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// The `syscall` instruction is two bytes long.
    pub(crate) fn restart_call(&mut self, number: usize) {
        self.rip = self.rip.wrapping_sub(2);
        self.rax = number as u64;
    }

    pub(crate) fn set_c_argument(&mut self, index: usize, value: u64) {
        match index {
            0 => self.rdi = value,
            1 => self.rsi = value,
            2 => self.rdx = value,
            _ => debug_assert!(false, "C argument {index} is not passed in a register here"),
        }
    }

    /// In the order of `struct sigcontext`.
    pub(crate) fn to_sigcontext(self) -> [u64; 18] {
        let mut seen = self;
        if self.return_by == RETURN_BY_SYSRET {
            (seen.rcx, seen.r11) = (self.rip, self.rflags);
        }
        in_sigcontext_order!(seen)
    }

    /// Everything may be hostile: flags are cut to what a user may have, and the long way back, which
    /// takes any values, is chosen.
    pub(crate) fn set_from_sigcontext(&mut self, from: &[u64; 18]) {
        in_sigcontext_order!(self) = *from;
        self.rflags = self.rflags & FLAGS_OF_USER | FLAG_INTERRUPTS | FLAG_FIXED;
        self.return_by = RETURN_BY_INTERRUPT_FRAME;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigcontext_survives_the_round_trip() {
        let mut registers = Registers::new(1, 2);
        let mut from = [0; 18];
        for (index, value) in from.iter_mut().enumerate() {
            *value = 0x1000 + index as u64;
        }
        from[17] = 0x246;
        registers.set_from_sigcontext(&from);
        assert_eq!(registers.to_sigcontext(), from);
    }

    #[test]
    fn hostile_flags_are_cut() {
        let mut registers = Registers::new(0, 0);
        registers.set_from_sigcontext(&[u64::MAX; 18]);
        assert_eq!(registers.rflags & (3 << 12), 0, "I/O privilege");
        assert_eq!(registers.rflags & (1 << 14), 0, "nested task");
        assert_eq!(
            registers.rflags & (7 << 17) & !(1 << 18),
            0,
            "virtual 8086, virtual interrupts"
        );
        registers.set_from_sigcontext(&[0; 18]);
        assert_eq!(registers.rflags, FLAG_INTERRUPTS | FLAG_FIXED);
    }

    #[test]
    fn a_restarted_call_runs_the_same_instruction_again() {
        let mut registers = Registers::new(0x1002, 0);
        registers.restart_call(39);
        assert_eq!((registers.rip, registers.rax), (0x1000, 39));
    }
}
