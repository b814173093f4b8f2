//! The registers of a tracee, between the machine's order and that of `ptrace`.

use abi::Errno;
use abi::ptrace::{USER_CODE, USER_DATA, UserRegisters};
use alloc::vec::Vec;
use base::user::{self, UserContext};
use hal::UserContext as _;

use crate::memory::USER_END;

/// No call.
pub const NO_CALL: u64 = u64::MAX;
/// The trap flag: one instruction, then an exception.
pub const TRAP_FLAG: u64 = 1 << 8;
/// Where flags are in the machine's order.
const FLAGS: usize = 17;
/// Where the register is that `syscall` saves the flags in.
const SAVED_FLAGS: usize = 3;
/// Requested privilege of a selector.
const PRIVILEGE: u64 = 3;

/// A copy of the registers; `call` is the number of the call that the thread is in.
pub fn of(context: &UserContext, call: u64, gs_base: u64) -> UserRegisters {
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags] =
        context.general_registers();
    UserRegisters {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        call,
        rip,
        cs: USER_CODE,
        flags,
        rsp,
        ss: USER_DATA,
        fs_base: context.thread_pointer(),
        gs_base,
        ds: 0,
        es: 0,
        fs: 0,
        gs: 0,
    }
}

/// Takes over what a tracer has written; flags are cut to what a program may have.
pub fn put(context: &mut UserContext, from: &UserRegisters) {
    context.set_general_registers(&[
        from.r8, from.r9, from.r10, from.r11, from.r12, from.r13, from.r14, from.r15, from.rdi,
        from.rsi, from.rbp, from.rbx, from.rdx, from.rax, from.rcx, from.rsp, from.rip, from.flags,
    ]);
    context.set_thread_pointer(from.fs_base);
}

/// Whether a tracer may write these.
///
/// # Errors
/// `EIO` for selectors of no user and bases outside of user space.
pub fn check(registers: &UserRegisters) -> Result<(), Errno> {
    let is_user = |selector: u64| selector as u16 as u64 & PRIVILEGE == PRIVILEGE;
    let data = [registers.ds, registers.es, registers.fs, registers.gs];
    let is_valid = is_user(registers.cs)
        && is_user(registers.ss)
        && data.iter().all(|selector| *selector as u16 == 0 || is_user(*selector))
        && registers.fs_base < USER_END
        && registers.gs_base < USER_END;
    if is_valid { Ok(()) } else { Err(Errno::EIO) }
}

/// The floating-point state of a context, complete.
pub fn floating_point(context: &mut UserContext) -> Vec<u8> {
    user::release(context);
    context.fpu().to_vec()
}

/// Makes the thread trap after one instruction.
pub fn begin_step(context: &mut UserContext) {
    let mut registers = context.general_registers();
    if let Some(flags) = registers.get_mut(FLAGS) {
        *flags |= TRAP_FLAG;
    }
    context.set_general_registers(&registers);
}

/// Takes that back. After a system call its flags are in a second register too.
pub fn end_step(context: &mut UserContext, after_call: bool) {
    let mut registers = context.general_registers();
    for index in [Some(FLAGS), after_call.then_some(SAVED_FLAGS)].into_iter().flatten() {
        if let Some(flags) = registers.get_mut(index) {
            *flags &= !TRAP_FLAG;
        }
    }
    context.set_general_registers(&registers);
}
