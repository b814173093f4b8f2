//! May eight bytes below the stack pointer be overwritten where a program calls the system?
//!
//! The System V ABI lets a function that calls nobody keep data in 128 bytes below its stack pointer.
//! A `call` there would destroy the first eight. A site is patched only when
//! * nothing that can run after it in its function looks at them: from the site on all paths are decoded
//!   until each ends (at a return, or at a call or push, which overwrite the place themselves);
//! * no instruction before it names a place below the stack pointer: what a function keeps there for the
//!   call itself, such as a structure whose address it passes, must be put there before. Every
//!   instruction that the site can be reached from in a straight line is looked at, whatever byte it
//!   begins at, for that is not known;
//! * no register of the thread that has just made the call points there.
//!
//! What cannot be decided is refused. The boundary behind the site is certain: a system call has returned
//! there.

use crate::contract::ReadCode;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// Instructions that are looked at before the answer is no.
const MOST_INSTRUCTIONS: usize = 96;
/// Branches that wait to be looked at.
const MOST_BRANCHES: usize = 16;

/// Code that is read at a time.
const PART: usize = 128;
/// Bytes before a site that are looked at.
const BEFORE: usize = 1024;
/// Bytes of a site.
const SITE: usize = 2;
/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// Frame pointer, stack pointer and what the call itself has changed, among the general registers.
const FRAME_POINTER: usize = 10;
const STACK_POINTER: usize = 15;
const CHANGED_BY_CALL: [usize; 4] = [3, 13, 14, 16];
/// The longest instruction.
const LONGEST: usize = 15;

/// Whether the function around the site that ends at `after` uses nothing below the stack pointer, as far
/// as the site is concerned. `registers` are those of a thread there.
pub(crate) fn is_unused(read: ReadCode<'_>, after: u64, registers: &[u64; 18]) -> bool {
    let stack = registers[STACK_POINTER];
    let is_below = |address: u64| stack.wrapping_sub(address).wrapping_sub(1) < RED_ZONE;
    let points_below = registers
        .iter()
        .enumerate()
        .filter(|(index, _)| !CHANGED_BY_CALL.contains(index))
        .any(|(_, value)| is_below(*value));
    let frame = registers[FRAME_POINTER];
    !points_below
        && is_dead_after(read, after)
        && is_untouched_before(read, after, &|displacement| {
            is_below(frame.wrapping_add(displacement))
        })
}

/// Whether nothing that leads straight to the site that ends at `after` names a place below the stack
/// pointer. `is_below` says so of a distance from the frame pointer.
fn is_untouched_before(read: ReadCode<'_>, after: u64, is_below: &dyn Fn(u64) -> bool) -> bool {
    let mut code = [0; BEFORE + SITE];
    // The page before may not be there: then nothing on it has run, and the code begins at this one.
    let mut start = after.saturating_sub(code.len() as u64);
    let mut length = (after - start) as usize;
    let Some(whole) = code.get_mut(..length) else { return false };
    if read(start, whole) < length {
        start = (after - SITE as u64) & !0xfff;
        length = (after - start) as usize;
        let Some(rest) = code.get_mut(..length) else { return false };
        if read(start, rest) < length {
            return false;
        }
    }
    let Some(site) = length.checked_sub(SITE) else { return false };
    // Whether what begins at a byte leads to the site.
    let mut leads = [false; BEFORE + SITE + 1];
    if let Some(at_site) = leads.get_mut(site) {
        *at_site = true;
    }
    for at in (0..site).rev() {
        let bytes = code.get(at..length).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, start + at as u64, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let next = at + instruction.len();
        if instruction.is_invalid() || next > site || !leads.get(next).copied().unwrap_or(false) {
            continue;
        }
        if let Some(here) = leads.get_mut(at) {
            *here = true;
        }
        let names_memory =
            (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory);
        let displacement = instruction.memory_displacement64();
        let is_named = names_memory
            && match instruction.memory_base() {
                Register::RSP => (displacement as i64) < 0,
                Register::RBP => is_below(displacement),
                _ => false,
            };
        if is_named {
            return false;
        }
    }
    true
}

/// Whether the bytes below the stack pointer are dead at `start`. `read` reads code and says how many
/// bytes were there.
pub(crate) fn is_dead_after(read: ReadCode<'_>, start: u64) -> bool {
    let mut starts = [0; MOST_BRANCHES];
    let mut count = 1;
    let mut next = 0;
    let mut left = MOST_INSTRUCTIONS;
    starts[0] = start;
    while let Some(&from) = starts.get(next).filter(|_| next < count) {
        next += 1;
        let mut address = from;
        'parts: loop {
            let mut part = [0; PART];
            let length = read(address, &mut part).min(PART);
            let is_cut = length < PART;
            let code = part.get(..length).unwrap_or_default();
            let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
            while is_cut || decoder.position() + LONGEST <= length {
                let instruction = decoder.decode();
                if left == 0 || instruction.is_invalid() {
                    return false;
                }
                left -= 1;
                match judge(&instruction) {
                    Verdict::Alive => return false,
                    Verdict::Dead => break 'parts,
                    Verdict::GoOn => {}
                    Verdict::Branch { target, falls_through } => {
                        if !starts.iter().take(count).any(|known| *known == target) {
                            let Some(slot) = starts.get_mut(count) else { return false };
                            *slot = target;
                            count += 1;
                        }
                        if !falls_through {
                            break 'parts;
                        }
                    }
                }
            }
            address = decoder.ip();
        }
    }
    true
}

enum Verdict {
    /// Something below the stack pointer may be used.
    Alive,
    /// From here on nothing can be.
    Dead,
    GoOn,
    Branch {
        target: u64,
        falls_through: bool,
    },
}

fn judge(instruction: &Instruction) -> Verdict {
    let touches_memory =
        (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory);
    if touches_memory {
        let base = instruction.memory_base();
        // Functions compiled without optimisation reach the place through the frame pointer.
        let is_stack = matches!(base, Register::RSP | Register::RBP);
        if is_stack && (instruction.memory_displacement64() as i64) < 0 {
            return Verdict::Alive;
        }
    }
    match instruction.flow_control() {
        FlowControl::Next => {
            // A push overwrites the place itself.
            let pushes = instruction.stack_pointer_increment() < 0;
            if pushes { Verdict::Dead } else { Verdict::GoOn }
        }
        FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => Verdict::Dead,
        FlowControl::Call => {
            // `syscall` counts as a call, but pushes nothing.
            let is_trap = instruction.stack_pointer_increment() == 0;
            if is_trap { Verdict::GoOn } else { Verdict::Dead }
        }
        FlowControl::IndirectCall => Verdict::Dead,
        FlowControl::ConditionalBranch => {
            Verdict::Branch { target: instruction.near_branch_target(), falls_through: true }
        }
        FlowControl::UnconditionalBranch => {
            Verdict::Branch { target: instruction.near_branch_target(), falls_through: false }
        }
        FlowControl::IndirectBranch | FlowControl::XbeginXabortXend => Verdict::Alive,
    }
}

#[cfg(test)]
mod tests {
    fn is_dead_from(code: &[u8], address: u64, start: u64) -> bool {
        let read = |from: u64, into: &mut [u8]| {
            let offset = from.checked_sub(address).map_or(code.len(), |offset| offset as usize);
            let there = code.get(offset..).unwrap_or_default();
            let length = there.len().min(into.len());
            into[..length].copy_from_slice(&there[..length]);
            length
        };
        super::is_dead_after(&read, start)
    }

    fn is_dead_after(code: &[u8], address: u64) -> bool {
        is_dead_from(code, address, address)
    }

    /// Whether a site may be patched in code that lies at 0x1000, with `registers` as a thread has them.
    fn may_patch(code: &[u8], after: u64, registers: &[u64; 18]) -> bool {
        let read = |from: u64, into: &mut [u8]| {
            let Some(offset) = from.checked_sub(0x1000) else { return 0 };
            let there = code.get(offset as usize..).unwrap_or_default();
            let length = there.len().min(into.len());
            into[..length].copy_from_slice(&there[..length]);
            length
        };
        super::is_unused(&read, after, registers)
    }

    fn registers() -> [u64; 18] {
        let mut registers = [0; 18];
        registers[super::STACK_POINTER] = 0x8000;
        registers[super::FRAME_POINTER] = 0x9000;
        registers
    }

    #[test]
    fn a_plain_wrapper_is_patched() {
        // mov eax, 110; syscall; ret
        assert!(may_patch(&[0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3], 0x1007, &registers()));
    }

    #[test]
    fn a_leaf_that_passes_what_it_keeps_below_its_stack_is_left_alone() {
        // mov [rsp - 16], rdi; lea rdi, [rsp - 16]; mov eax, 35; syscall; ret
        let code = [
            0x48, 0x89, 0x7c, 0x24, 0xf0, 0x48, 0x8d, 0x7c, 0x24, 0xf0, 0xb8, 35, 0, 0, 0, 0x0f,
            0x05, 0xc3,
        ];
        assert!(!may_patch(&code, 0x1011, &registers()));
        // The address alone, made long before and kept: lea rbx, [rsp - 16], then no-operations.
        let mut code = vec![0x48, 0x8d, 0x5c, 0x24, 0xf0];
        code.resize(600, 0x90);
        code.extend([0x0f, 0x05, 0xc3]);
        assert!(!may_patch(&code, 0x1000 + 602, &registers()));
    }

    #[test]
    fn a_frame_pointer_that_is_the_stack_pointer_is_looked_through() {
        // mov [rbp - 8], rdi; syscall; ret
        let code = [0x48, 0x89, 0x7d, 0xf8, 0x0f, 0x05, 0xc3];
        assert!(may_patch(&code, 0x1006, &registers()));
        let mut leaf = registers();
        leaf[super::FRAME_POINTER] = leaf[super::STACK_POINTER];
        assert!(!may_patch(&code, 0x1006, &leaf));
    }

    #[test]
    fn a_register_that_points_below_the_stack_is_enough() {
        let code = [0xb8, 35, 0, 0, 0, 0x0f, 0x05, 0xc3];
        for (value, expected) in [(0x8000, true), (0x7fff, false), (0x7f80, false), (0x7f7f, true)]
        {
            let mut pointing = registers();
            pointing[8] = value;
            assert_eq!(may_patch(&code, 0x1007, &pointing), expected, "{value:#x}");
        }
        let mut returned = registers();
        returned[13] = 0x7ff8;
        assert!(may_patch(&code, 0x1007, &returned), "the result of the call says nothing");
    }

    #[test]
    fn a_return_ends_it() {
        assert!(is_dead_after(&[0xc3], 0x1000));
    }

    #[test]
    fn a_wrapper_that_sets_errno_is_safe() {
        // cmp rax, -4096; ja +1; ret; mov rdx, [rip]; neg eax; mov fs:[rdx], eax; or rax, -1; ret
        let code = [
            0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x01, 0xc3, 0x48, 0x8b, 0x15, 0, 0, 0, 0,
            0xf7, 0xd8, 0x64, 0x89, 0x02, 0x48, 0x83, 0xc8, 0xff, 0xc3,
        ];
        assert!(is_dead_after(&code, 0x1000));
    }

    #[test]
    fn a_leaf_that_reads_below_its_stack_pointer_is_not() {
        // mov rax, [rsp - 16]; ret
        assert!(!is_dead_after(&[0x48, 0x8b, 0x44, 0x24, 0xf0, 0xc3], 0x1000));
        // The same on one of two paths: test eax, eax; je +1; ret; mov rax, [rsp - 16]; ret
        let code = [0x85, 0xc0, 0x74, 0x01, 0xc3, 0x48, 0x8b, 0x44, 0x24, 0xf0, 0xc3];
        assert!(!is_dead_after(&code, 0x1000));
        // Through the frame pointer: mov eax, [rbp - 4]; pop rbp; ret
        assert!(!is_dead_after(&[0x8b, 0x45, 0xfc, 0x5d, 0xc3], 0x1000));
    }

    #[test]
    fn a_call_or_a_push_overwrites_the_place_anyway() {
        // call +0; mov rax, [rsp - 16]
        assert!(is_dead_after(&[0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x44, 0x24, 0xf0], 0x1000));
        // push rdx; ret
        assert!(is_dead_after(&[0x52, 0xc3], 0x1000));
    }

    #[test]
    fn what_cannot_be_decided_is_refused() {
        // jmp rdx
        assert!(!is_dead_after(&[0xff, 0xe2], 0x1000));
        // The end of what could be read.
        assert!(!is_dead_after(&[0x90, 0x90], 0x1000));
        // A branch out of it, backwards.
        assert!(!is_dead_after(&[0xeb, 0x80], 0x1000));
        assert!(!is_dead_after(&[], 0x1000));
    }

    #[test]
    fn code_before_the_site_may_be_reached() {
        // ret; (start) jmp -3
        assert!(is_dead_from(&[0xc3, 0xeb, 0xfd], 0x1000, 0x1001));
    }

    #[test]
    fn what_lies_far_away_is_looked_at_too() {
        // jmp +1000; there: neg eax; ret
        let mut code = vec![0xe9, 0xe8, 0x03, 0, 0];
        code.resize(5 + 1000, 0xcc);
        code.extend([0xf7, 0xd8, 0xc3]);
        assert!(is_dead_after(&code, 0x1000));
        code.truncate(1005);
        code.extend([0x48, 0x8b, 0x44, 0x24, 0xf0, 0xc3]);
        assert!(!is_dead_after(&code, 0x1000));
    }

    #[test]
    fn more_than_one_part_is_read() {
        let mut code = vec![0x90; 70];
        code.extend([0x48, 0x8d, 0x80, 0, 0, 0, 0].repeat(10));
        code.push(0xc3);
        assert!(is_dead_after(&code, 0x1000));
    }

    #[test]
    fn a_loop_comes_to_an_end() {
        // dec eax; jne -4; ret
        assert!(is_dead_after(&[0xff, 0xc8, 0x75, 0xfc, 0xc3], 0x1000));
    }
}
