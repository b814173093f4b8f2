//! Signal frames: entering a handler writes one to the user's stack, `rt_sigreturn` reads it back.
//!
//! Everything that is read back may be hostile. Registers go through the machine, which forces flags
//! and privilege; the floating-point state is checked by it; the mask loses what cannot be blocked. A
//! frame that cannot be read, or whose floating-point state is no valid one, is a `SIGSEGV`.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use core::ops::Range;

use abi::Errno;
use abi::arch::x86_64::signal as layout;
use abi::arch::x86_64::signal::register;
use abi::arch::x86_64::signal::{FpuSoftwareBytes, SignalContext, SignalFrame, UserContextRecord};
use abi::signal::{
    Action, AlternateStack, MINSIGSTKSZ, SA_ONSTACK, SA_RESTORER, SI_KERNEL, SS_AUTODISARM,
    SS_DISABLE, SS_ONSTACK, Signal, SignalSet,
};
use base::user::{self, UserContext};
use hal::{Trap, UserContext as _, VirtAddr};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::deliver::{force, force_segmentation_fault};
use super::info::{SignalInfo, TrapCode};
use super::thread::NO_STACK;
use crate::memory::{AddressSpace, UserMemory};
use crate::process::Thread;

/// Exception of the machine for what a program may not do.
const GENERAL_PROTECTION: u32 = 13;
/// Largest floating-point state that the machine has.
const FPU_LIMIT: usize = 4096;

/// Whether a stack pointer lies on the alternate stack, as Linux decides it for stacks that grow
/// downwards.
fn lies_on(stack: &AlternateStack, pointer: u64) -> bool {
    pointer > stack.base && pointer - stack.base <= stack.size
}

/// Whether the thread is executing on its alternate stack. One that disarms itself is never in use.
fn is_on(stack: &AlternateStack, pointer: u64) -> bool {
    stack.flags & SS_AUTODISARM == 0 && lies_on(stack, pointer)
}

/// `sigaltstack`: reports the stack in force, and sets another.
///
/// # Errors
/// `EPERM` when the thread runs on the present one, `EINVAL` for unknown flags, `ENOMEM` when the new
/// one is too small.
pub fn exchange_stack(
    thread: &Thread,
    new: Option<AlternateStack>,
    stack_pointer: u64,
) -> Result<AlternateStack, Errno> {
    let mut state = thread.signals.lock();
    let present = state.stack;
    let mode = if present.size == 0 {
        SS_DISABLE
    } else if is_on(&present, stack_pointer) {
        SS_ONSTACK
    } else {
        0
    };
    let report = AlternateStack { flags: mode | present.flags & SS_AUTODISARM, ..present };
    let Some(new) = new else { return Ok(report) };
    if is_on(&present, stack_pointer) {
        return Err(Errno::EPERM);
    }
    state.stack = match new.flags & !SS_AUTODISARM {
        SS_DISABLE => AlternateStack { base: 0, flags: new.flags, padding: 0, size: 0 },
        0 | SS_ONSTACK if new.size < MINSIGSTKSZ => return Err(Errno::ENOMEM),
        0 | SS_ONSTACK => AlternateStack { padding: 0, ..new },
        _ => return Err(Errno::EINVAL),
    };
    Ok(report)
}

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    frame: u64,
    fpu: u64,
}

/// Finds room for a frame and `fpu_size` bytes of floating-point state; `None` when there is none.
fn place(
    stack_pointer: u64,
    stack: &AlternateStack,
    wants_alternate: bool,
    fpu_size: usize,
) -> Option<Place> {
    let nested = is_on(stack, stack_pointer);
    let mut top = stack_pointer.checked_sub(layout::RED_ZONE)?;
    let enters = wants_alternate && stack.size != 0 && !is_on(stack, top);
    if enters {
        top = stack.base.checked_add(stack.size)?;
    }
    let fpu_size = u64::try_from(fpu_size).ok()?;
    let frame_size = u64::try_from(size_of::<SignalFrame>()).ok()?;
    let fpu = top.checked_sub(fpu_size)? & !(layout::FPU_ALIGNMENT - 1);
    let below = fpu.checked_sub(frame_size)?;
    let frame = (below & !(layout::FRAME_ALIGNMENT - 1)).checked_sub(8)?;
    if (nested || enters) && !lies_on(stack, frame) {
        return None;
    }
    Some(Place { frame, fpu })
}

/// The components of a state that are not at reset.
fn components(state: &[u8]) -> u64 {
    state
        .get(layout::FXSAVE_SIZE..layout::FXSAVE_SIZE + 8)
        .and_then(|bytes| u64::read_from_bytes(bytes).ok())
        .unwrap_or(0)
}

/// How a floating-point state goes to the user: its beginning, and its end where that is in use. What lies
/// between is left as the stack has it.
struct FpuParts {
    head: Range<usize>,
    tail: Range<usize>,
    /// What an extended state has instead of its software bytes; it is followed by a magic word.
    software: Option<FpuSoftwareBytes>,
    /// Bytes of all together.
    size: usize,
}

impl FpuParts {
    fn of(state: &[u8]) -> FpuParts {
        let size = state.len().min(FPU_LIMIT);
        let components = components(state);
        let [head, tail] = UserContext::fpu_parts(components);
        let is_extended = size >= layout::FXSAVE_SIZE + layout::XSAVE_HEADER_SIZE;
        let magic = if is_extended { layout::FP_XSTATE_MAGIC2_SIZE } else { 0 };
        let software = is_extended.then_some(FpuSoftwareBytes {
            magic: layout::FP_XSTATE_MAGIC1,
            extended_size: (size + magic) as u32,
            features: components | layout::LEGACY_FEATURES,
            state_size: size as u32,
            padding: [0; 7],
        });
        FpuParts { head, tail, software, size: size + magic }
    }

    /// The parts of `state`, and where they go in a frame whose floating-point state lies at `address`. The
    /// software bytes lie in the first one, and so come after it.
    fn pieces<'a>(&'a self, state: &'a [u8], address: u64) -> [(VirtAddr, &'a [u8]); 4] {
        let part = |range: &Range<usize>| {
            let bytes = state.get(range.clone()).unwrap_or_default();
            (VirtAddr(address + offset(range.start)), bytes)
        };
        let (software, magic): (&[u8], &[u8]) = match &self.software {
            Some(software) => (software.as_bytes(), layout::FP_XSTATE_MAGIC2.as_bytes()),
            None => (&[], &[]),
        };
        let magic_at = address + offset(self.size - magic.len());
        [
            part(&self.head),
            (VirtAddr(address + offset(layout::SOFTWARE_BYTES_OFFSET)), software),
            part(&self.tail),
            (VirtAddr(magic_at), magic),
        ]
    }
}

/// A frame that is to be written: where, and what depends on the thread's state.
struct Draft {
    place: Place,
    fpu: FpuParts,
    registers: [u64; 18],
    stack: AlternateStack,
    trap: TrapCode,
}

impl Draft {
    /// Finds room for the frame of a handler. `EFAULT` when the stack has none, or the action has no restorer.
    fn new(thread: &Thread, context: &mut UserContext, action: &Action) -> Result<Draft, Errno> {
        if action.flags & SA_RESTORER == 0 {
            return Err(Errno::EFAULT);
        }
        user::release(context);
        let fpu = FpuParts::of(context.fpu());
        let registers = context.general_registers();
        let (stack, trap) = {
            let signals = thread.signals.lock();
            (signals.stack, signals.trap)
        };
        let wants_alternate = action.flags & SA_ONSTACK != 0;
        let place = place(context.stack_pointer(), &stack, wants_alternate, fpu.size);
        Ok(Draft { place: place.ok_or(Errno::EFAULT)?, fpu, registers, stack, trap })
    }

    /// The frame but for the floating-point state.
    #[inline]
    fn frame(&self, action: &Action, info: &SignalInfo, mask: SignalSet) -> SignalFrame {
        let flags = layout::UC_SIGCONTEXT_SS | layout::UC_STRICT_RESTORE_SS;
        let is_extended = self.fpu.software.is_some();
        SignalFrame {
            return_address: action.restorer,
            context: UserContextRecord {
                flags: if is_extended { flags | layout::UC_FP_XSTATE } else { flags },
                link: 0,
                stack: self.stack,
                machine: SignalContext {
                    registers: self.registers,
                    cs: layout::USER_CODE_SELECTOR,
                    gs: 0,
                    fs: 0,
                    ss: layout::USER_DATA_SELECTOR,
                    error: u64::from(self.trap.error),
                    trap_number: u64::from(self.trap.vector),
                    old_mask: mask.0,
                    fault_address: self.trap.address,
                    fpu_state: self.place.fpu,
                    reserved: [0; 8],
                },
                mask,
            },
            info: info.encode(),
        }
    }

    /// All that is written, and where.
    fn pieces<'a>(&'a self, state: &'a [u8], frame: &'a SignalFrame) -> [(VirtAddr, &'a [u8]); 5] {
        let [head, software, tail, magic] = self.fpu.pieces(state, self.place.fpu);
        [head, software, tail, magic, (VirtAddr(self.place.frame), frame.as_bytes())]
    }

    /// The frame is there: sets the registers so that the handler runs.
    fn enter(&self, thread: &Thread, context: &mut UserContext, action: &Action, signal: Signal) {
        let frame = self.place.frame;
        let mut registers = self.registers;
        registers[register::RDI] = signal.number().unsigned_abs().into();
        registers[register::RSI] = frame + offset(core::mem::offset_of!(SignalFrame, info));
        registers[register::RDX] = frame + offset(core::mem::offset_of!(SignalFrame, context));
        registers[register::RAX] = 0;
        registers[register::RSP] = frame;
        registers[register::RIP] = action.handler;
        registers[register::FLAGS] &=
            !(layout::FLAG_DIRECTION | layout::FLAG_RESUME | layout::FLAG_TRAP);
        context.set_general_registers(&registers);
        context.reset_fpu();
        if self.stack.flags & SS_AUTODISARM != 0 {
            thread.signals.lock().stack = NO_STACK;
        }
    }
}

/// Writes a frame to the user's stack, whose pages are there, and sets the registers so that the handler
/// runs. False, and nothing is set, when a page is missing.
///
/// # Errors
/// As `push`.
pub fn push_at_once(
    thread: &Thread,
    context: &mut UserContext,
    action: &Action,
    info: &SignalInfo,
    mask: SignalSet,
) -> Result<bool, Errno> {
    let draft = Draft::new(thread, context, action)?;
    let frame = draft.frame(action, info, mask);
    let is_there = thread.space().put_pieces_now(&draft.pieces(context.fpu(), &frame));
    if is_there {
        draft.enter(thread, context, action, info.signal);
    }
    Ok(is_there)
}

/// Writes a frame to the user's stack and sets the registers so that the handler runs.
///
/// # Errors
/// `EFAULT` when the stack has no room or is not writable, or the action has no restorer.
pub async fn push(
    thread: &Thread,
    context: &mut UserContext,
    action: &Action,
    info: &SignalInfo,
    mask: SignalSet,
) -> Result<(), Errno> {
    let draft = Draft::new(thread, context, action)?;
    let frame = draft.frame(action, info, mask);
    let memory = UserMemory::new(thread.space());
    for (address, bytes) in draft.pieces(context.fpu(), &frame) {
        memory.write_bytes(address.0, bytes).await?;
    }
    draft.enter(thread, context, action, info.signal);
    Ok(())
}

const fn offset(bytes: usize) -> u64 {
    bytes as u64
}

/// `rt_sigreturn`: continues what a handler interrupted, from the frame below the stack pointer.
/// A frame that is not valid ends in a forced `SIGSEGV`.
pub async fn restore(thread: &Arc<Thread>, context: &mut UserContext) {
    if try_restore(thread, context).await.is_err() {
        log::debug!("thread {}: bad signal frame", thread.tid());
        force_segmentation_fault(thread, Signal::SIGSEGV);
    }
}

/// As `restore`, from a frame that is there and valid. False, and only floating-point state has changed, for
/// any other: `restore` does it properly, which sets that state.
pub fn restore_at_once(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &AddressSpace,
) -> bool {
    let mut record = UserContextRecord::new_zeroed();
    let is_there =
        record_address(context).is_ok_and(|address| space.get_now(address, record.as_mut_bytes()));
    if !is_there {
        return false;
    }
    user::release(context);
    let address = record.machine.fpu_state;
    let is_filled = context.fill_fpu(|state| fill_fpu(state, space, address));
    if is_filled {
        take_over(thread, context, &record);
    }
    is_filled
}

/// Where the state of the thread is in a frame whose return address the handler's return has taken from the
/// stack.
fn record_address(context: &UserContext) -> Result<u64, Errno> {
    let record_at = offset(core::mem::offset_of!(SignalFrame, context));
    context
        .stack_pointer()
        .checked_sub(8)
        .and_then(|frame| frame.checked_add(record_at))
        .ok_or(Errno::EFAULT)
}

async fn try_restore(thread: &Arc<Thread>, context: &mut UserContext) -> Result<(), Errno> {
    let address = record_address(context)?;
    let memory = UserMemory::new(thread.space());
    let record: UserContextRecord = memory.read_value(address).await?;
    user::release(context);
    match read_fpu_state(&memory, record.machine.fpu_state).await? {
        Some(state) if !context.write_fpu(&state) => return Err(Errno::EFAULT),
        Some(_) => {}
        None => context.reset_fpu(),
    }
    take_over(thread, context, &record);
    Ok(())
}

/// Takes mask, registers and alternate stack from a frame.
fn take_over(thread: &Arc<Thread>, context: &mut UserContext, record: &UserContextRecord) {
    {
        let mut state = thread.signals.lock();
        thread.signals.set_blocked(&mut state, record.mask);
        state.restart = None;
        thread.signals.recalculate(&state, &thread.process.signals);
    }
    context.set_general_registers(&record.machine.registers);
    // As on Linux, an alternate stack that cannot be set again is left as it is.
    let _ = exchange_stack(thread, Some(record.stack), context.stack_pointer());
    if let Some(selector) = bad_selector(record) {
        let fault = Trap::Fault {
            signal: Signal::SIGSEGV.number().unsigned_abs() as u8,
            code: SI_KERNEL,
            address: VirtAddr(0),
            vector: GENERAL_PROTECTION,
            error: u32::from(selector & !3),
        };
        force(thread, SignalInfo::of_fault(&fault));
    }
}

/// The selector of a frame with which user mode cannot be entered: programs have one for code and one
/// for data, and no other. Returning with another one faults as the machine's own return would.
fn bad_selector(context: &UserContextRecord) -> Option<u16> {
    let machine = &context.machine;
    let is_strict = context.flags & layout::UC_STRICT_RESTORE_SS != 0;
    if machine.cs | 3 != layout::USER_CODE_SELECTOR {
        Some(machine.cs)
    } else if is_strict && machine.ss | 3 != layout::USER_DATA_SELECTOR {
        Some(machine.ss)
    } else {
        None
    }
}

/// Fills the thread's floating-point state from a frame, if all that is in use of it is there, is as large as
/// the machine's, and lies in a few places only.
fn fill_fpu(state: &mut [u8], space: &AddressSpace, address: u64) -> bool {
    let size = state.len();
    let Some(magic_at) = address.checked_add(offset(size)) else { return false };
    let mut magic = [0; layout::FP_XSTATE_MAGIC2_SIZE];
    let Some((start, rest)) =
        state.split_at_mut_checked(layout::FXSAVE_SIZE + layout::XSAVE_HEADER_SIZE)
    else {
        return false;
    };
    let mut pieces = [(VirtAddr(address), &mut *start), (VirtAddr(magic_at), &mut magic[..])];
    if size > FPU_LIMIT || !space.get_pieces_now(&mut pieces) {
        return false;
    }
    let software = start
        .get(layout::SOFTWARE_BYTES_OFFSET..layout::FXSAVE_SIZE)
        .and_then(|bytes| FpuSoftwareBytes::read_from_bytes(bytes).ok());
    let is_whole = software.is_some_and(|software| {
        software.magic == layout::FP_XSTATE_MAGIC1
            && software.state_size as usize == size
            && software.extended_size >= software.state_size
            && magic == layout::FP_XSTATE_MAGIC2.to_le_bytes()
    });
    // What is there already begins both the state and its first part.
    let done = start.len();
    let mut fill = |part: Range<usize>| {
        let start = part.start.max(done);
        start >= part.end
            || rest
                .get_mut(start - done..part.end - done)
                .is_some_and(|bytes| space.get_now(address + offset(start), bytes))
    };
    let [first, second] = UserContext::fpu_parts(components(start));
    is_whole && fill(first) && fill(second)
}

/// Reads the floating-point state of a frame; `None` for the state at reset.
async fn read_fpu_state(memory: &UserMemory, address: u64) -> Result<Option<Vec<u8>>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let full = UserContext::fpu_size().min(FPU_LIMIT);
    let mut state = vec![0; full];
    let legacy = state.get_mut(..layout::FXSAVE_SIZE).ok_or(Errno::EFAULT)?;
    memory.read_bytes(address, legacy).await?;
    let software = legacy
        .get(layout::SOFTWARE_BYTES_OFFSET..)
        .and_then(|bytes| FpuSoftwareBytes::read_from_bytes(bytes).ok())
        .unwrap_or(FpuSoftwareBytes::new_zeroed());
    if full > layout::FXSAVE_SIZE && is_extended(&software, full) {
        let size = software.state_size as usize;
        let mut bytes = vec![0; size + layout::FP_XSTATE_MAGIC2_SIZE];
        memory.read_bytes(address, &mut bytes).await?;
        let magic = bytes.split_off(size);
        if magic == layout::FP_XSTATE_MAGIC2.to_le_bytes() {
            if let Some(start) = state.get_mut(..size) {
                start.copy_from_slice(&bytes);
            }
            return Ok(Some(state));
        }
    }
    // Only x87 and SSE are there; the rest is at reset.
    if let Some(header) = state.get_mut(layout::FXSAVE_SIZE..layout::FXSAVE_SIZE + 8) {
        header.copy_from_slice(&layout::LEGACY_FEATURES.to_le_bytes());
    }
    Ok(Some(state))
}

fn is_extended(software: &FpuSoftwareBytes, full: usize) -> bool {
    let size = software.state_size as usize;
    software.magic == layout::FP_XSTATE_MAGIC1
        && size >= layout::FXSAVE_SIZE + layout::XSAVE_HEADER_SIZE
        && size <= full
        && software.extended_size >= software.state_size
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: AlternateStack = AlternateStack { base: 0, flags: SS_DISABLE, padding: 0, size: 0 };

    proptest! {
        #[test]
        fn a_frame_lies_below_the_red_zone_and_is_aligned(
            pointer in 0x10000u64..0x7fff_ffff_f000,
            fpu_size in 512usize..4096,
        ) {
            let place = place(pointer, &NONE, true, fpu_size).unwrap();
            prop_assert_eq!(place.fpu % 64, 0);
            prop_assert_eq!((place.frame + 8) % 16, 0);
            prop_assert!(place.fpu + fpu_size as u64 + 128 <= pointer);
            prop_assert!(place.frame + size_of::<SignalFrame>() as u64 <= place.fpu);
        }

        #[test]
        fn a_frame_survives_its_bytes(bytes in prop::collection::vec(any::<u8>(), 440)) {
            let frame = SignalFrame::read_from_bytes(&bytes).unwrap();
            prop_assert_eq!(frame.as_bytes(), &bytes[..]);
        }

        #[test]
        fn any_software_bytes_are_judged_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 48),
            full in 512usize..4096,
        ) {
            let software = FpuSoftwareBytes::read_from_bytes(&bytes).unwrap();
            if is_extended(&software, full) {
                prop_assert!(software.state_size as usize <= full);
            }
        }
    }

    #[test]
    fn a_stack_pointer_near_zero_has_no_room() {
        assert_eq!(place(64, &NONE, false, 512), None);
        assert_eq!(place(600, &NONE, false, 512), None);
    }

    #[test]
    fn the_alternate_stack_is_entered_from_its_top() {
        let stack = AlternateStack { base: 0x10000, flags: 0, padding: 0, size: 0x4000 };
        let entered = place(0x7000_0000, &stack, true, 512).unwrap();
        assert!(entered.fpu + 512 <= 0x14000 && entered.frame > 0x10000);
        let nested = place(entered.frame, &stack, true, 512).unwrap();
        assert!(nested.frame < entered.frame && nested.frame > 0x10000);
        assert!(place(0x7000_0000, &stack, false, 512).unwrap().frame > 0x14000);
    }

    #[test]
    fn an_alternate_stack_that_overflows_gets_no_frame() {
        let stack = AlternateStack { base: 0x10000, flags: 0, padding: 0, size: 0x800 };
        assert_eq!(place(0x7000_0000, &stack, true, 2696), None);
        assert_eq!(place(0x10100, &stack, true, 512), None);
    }

    #[test]
    fn a_sealed_state_is_recognised_and_a_cut_one_is_not() {
        let parts = FpuParts::of(&[0; 832]);
        assert_eq!(parts.size, 836);
        assert!(FpuParts::of(&[0; 512]).software.is_none());
        let software = parts.software.unwrap();
        assert!(is_extended(&software, 832));
        assert!(!is_extended(&software, 700));
    }
}
