//! May eight bytes below the stack pointer be overwritten where a program calls the system?
//!
//! The System V ABI lets a function that calls nobody keep data in 128 bytes below its stack pointer.
//! A `call` there would destroy the first eight, so a site is patched only when nothing that can run
//! after it in its function looks at them. From the site on all paths are decoded until each ends (at a
//! return, or at a call or push, which overwrite the place themselves); what cannot be decided is
//! refused. The instruction boundaries are certain: the first is where a system call has returned to.

use crate::contract::ReadCode;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// Instructions that are looked at before the answer is no.
const MOST_INSTRUCTIONS: usize = 96;
/// Branches that wait to be looked at.
const MOST_BRANCHES: usize = 16;

/// Code that is read at a time.
const PART: usize = 128;
/// The longest instruction.
const LONGEST: usize = 15;

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
