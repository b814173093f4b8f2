//! Filters in classic BPF, as far as seccomp takes them: checked once, then run for each call.
//!
//! A checked program only jumps forward and inside of itself, reads the record of the call at whole
//! words, reads scratch words only after it has written them, and ends with a return; so a run takes no
//! more steps than the program has instructions.

use abi::Errno;
use alloc::vec::Vec;

/// Most instructions of one program.
pub const MOST_INSTRUCTIONS: usize = 4096;
/// Words of `struct seccomp_data`: number and architecture, instruction, six arguments.
pub const RECORD_WORDS: usize = 16;
const RECORD_SIZE: u32 = RECORD_WORDS as u32 * 4;
const SCRATCH_WORDS: usize = 16;

/// One instruction, as `struct sock_filter`.
#[derive(Clone, Copy, Debug, zerocopy::FromBytes)]
#[repr(C)]
pub struct Instruction {
    /// Class, operation and source.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub if_true: u8,
    /// And when it does not.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

const LOAD_RECORD: u16 = 0x20;
const LOAD_LENGTH: u16 = 0x80;
const LOAD_INDEX_LENGTH: u16 = 0x81;
const LOAD_CONSTANT: u16 = 0x00;
const LOAD_INDEX_CONSTANT: u16 = 0x01;
const LOAD_SCRATCH: u16 = 0x60;
const LOAD_INDEX_SCRATCH: u16 = 0x61;
const STORE: u16 = 0x02;
const STORE_INDEX: u16 = 0x03;
const RETURN_CONSTANT: u16 = 0x06;
const RETURN_VALUE: u16 = 0x16;
const TO_INDEX: u16 = 0x07;
const FROM_INDEX: u16 = 0x87;
const NEGATE: u16 = 0x84;
const JUMP: u16 = 0x05;

const CLASS: u16 = 0x07;
const CLASS_COMPUTE: u16 = 0x04;
const CLASS_JUMP: u16 = 0x05;
/// The other operand is the index register.
const FROM_REGISTER: u16 = 0x08;

/// A checked program.
#[derive(Debug)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// Checks a program as Linux does.
    ///
    /// # Errors
    /// `EINVAL` when it is empty, too long or wrong.
    pub fn check(instructions: Vec<Instruction>) -> Result<Program, Errno> {
        let count = instructions.len();
        if !(1..=MOST_INSTRUCTIONS).contains(&count) {
            return Err(Errno::EINVAL);
        }
        // Scratch words that are written on every way to an instruction.
        let mut reached: Vec<u16> = Vec::new();
        reached.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        reached.resize(count, u16::MAX);
        let mut written: u16 = 0;
        for (place, instruction) in instructions.iter().enumerate() {
            let left = count - place - 1;
            written &= reached.get(place).copied().unwrap_or(0);
            let mut reach = |skipped: usize, written: u16| -> Result<(), Errno> {
                let to = reached.get_mut(place + 1 + skipped).ok_or(Errno::EINVAL)?;
                *to &= written;
                Ok(())
            };
            instruction.check()?;
            let word = instruction.operand as usize;
            match instruction.code {
                STORE | STORE_INDEX => written |= 1 << word,
                LOAD_SCRATCH | LOAD_INDEX_SCRATCH if written & 1 << word == 0 => {
                    return Err(Errno::EINVAL);
                }
                JUMP if word >= left => return Err(Errno::EINVAL),
                JUMP => {
                    reach(word, written)?;
                    written = u16::MAX;
                }
                code if code & CLASS == CLASS_JUMP => {
                    reach(usize::from(instruction.if_true), written)?;
                    reach(usize::from(instruction.if_false), written)?;
                    written = u16::MAX;
                }
                _ => {}
            }
        }
        match instructions.last().map(|last| last.code) {
            Some(RETURN_CONSTANT | RETURN_VALUE) => Ok(Program(instructions)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Its instructions.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    /// Runs it on the record of a call and gives its verdict.
    pub fn run(&self, record: &[u32; RECORD_WORDS]) -> u32 {
        let (mut value, mut index) = (0_u32, 0_u32);
        let mut scratch = [0_u32; SCRATCH_WORDS];
        let mut place = 0;
        while let Some(instruction) = self.0.get(place) {
            let operand = instruction.operand;
            let at = operand as usize;
            place += 1;
            match instruction.code {
                LOAD_RECORD => value = record.get(at / 4).copied().unwrap_or(0),
                LOAD_LENGTH => value = RECORD_SIZE,
                LOAD_INDEX_LENGTH => index = RECORD_SIZE,
                LOAD_CONSTANT => value = operand,
                LOAD_INDEX_CONSTANT => index = operand,
                LOAD_SCRATCH => value = scratch.get(at).copied().unwrap_or(0),
                LOAD_INDEX_SCRATCH => index = scratch.get(at).copied().unwrap_or(0),
                STORE | STORE_INDEX => {
                    let stored = if instruction.code == STORE { value } else { index };
                    if let Some(word) = scratch.get_mut(at) {
                        *word = stored;
                    }
                }
                RETURN_CONSTANT => return operand,
                RETURN_VALUE => return value,
                TO_INDEX => index = value,
                FROM_INDEX => value = index,
                NEGATE => value = value.wrapping_neg(),
                JUMP => place += at,
                code => {
                    let other = if code & FROM_REGISTER != 0 { index } else { operand };
                    if code & CLASS == CLASS_COMPUTE {
                        // Division by an index of zero ends with the verdict 0.
                        match compute(code & 0xf0, value, other) {
                            Some(result) => value = result,
                            None => return 0,
                        }
                    } else {
                        let holds = compare(code & 0xf0, value, other);
                        let (yes, no) = (instruction.if_true, instruction.if_false);
                        place += usize::from(if holds { yes } else { no });
                    }
                }
            }
        }
        // A checked program returns; this is the strictest verdict.
        0x8000_0000
    }
}

fn compute(operation: u16, value: u32, other: u32) -> Option<u32> {
    Some(match operation {
        0x00 => value.wrapping_add(other),
        0x10 => value.wrapping_sub(other),
        0x20 => value.wrapping_mul(other),
        0x30 => value.checked_div(other)?,
        0x40 => value | other,
        0x50 => value & other,
        0x60 => value.wrapping_shl(other),
        0x70 => value.wrapping_shr(other),
        _ => value ^ other,
    })
}

fn compare(operation: u16, value: u32, other: u32) -> bool {
    match operation {
        0x10 => value == other,
        0x20 => value > other,
        0x30 => value >= other,
        _ => value & other != 0,
    }
}

impl Instruction {
    /// `EINVAL` unless seccomp takes it.
    fn check(&self) -> Result<(), Errno> {
        let operand = self.operand;
        let is_constant = self.code & FROM_REGISTER == 0;
        let is_right = match self.code {
            LOAD_RECORD => operand < RECORD_SIZE && operand.is_multiple_of(4),
            LOAD_SCRATCH | LOAD_INDEX_SCRATCH | STORE | STORE_INDEX => {
                operand < SCRATCH_WORDS as u32
            }
            LOAD_LENGTH | LOAD_INDEX_LENGTH | LOAD_CONSTANT | LOAD_INDEX_CONSTANT
            | RETURN_CONSTANT | RETURN_VALUE | TO_INDEX | FROM_INDEX | NEGATE | JUMP => true,
            code if code & CLASS == CLASS_COMPUTE && code <= 0xff => match code & 0xf0 {
                0x00 | 0x10 | 0x20 | 0x40 | 0x50 | 0xa0 => true,
                0x30 => !is_constant || operand != 0,
                0x60 | 0x70 => !is_constant || operand < 32,
                _ => false,
            },
            code if code & CLASS == CLASS_JUMP && code <= 0xff => {
                matches!(code & 0xf0, 0x10 | 0x20 | 0x30 | 0x40)
            }
            _ => false,
        };
        if is_right { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, if_true: u8, if_false: u8, operand: u32) -> Instruction {
        Instruction { code, if_true, if_false, operand }
    }

    fn verdict(program: &[Instruction], number: u32) -> Result<u32, Errno> {
        let mut record = [0; RECORD_WORDS];
        record[0] = number;
        record[4] = 7;
        Program::check(program.to_vec()).map(|program| program.run(&record))
    }

    #[test]
    fn a_number_is_looked_for() {
        let program = [
            instruction(LOAD_RECORD, 0, 0, 0),
            instruction(0x15, 0, 1, 39),
            instruction(RETURN_CONSTANT, 0, 0, 0x5_0001),
            instruction(RETURN_CONSTANT, 0, 0, 0x7fff_0000),
        ];
        assert_eq!(verdict(&program, 39), Ok(0x5_0001));
        assert_eq!(verdict(&program, 40), Ok(0x7fff_0000));
    }

    #[test]
    fn values_are_computed() {
        let program = [
            instruction(LOAD_RECORD, 0, 0, 16),
            instruction(STORE, 0, 0, 3),
            instruction(LOAD_INDEX_SCRATCH, 0, 0, 3),
            instruction(0x0c, 0, 0, 0), // add the index
            instruction(0x64, 0, 0, 4), // shift left
            instruction(NEGATE, 0, 0, 0),
            instruction(RETURN_VALUE, 0, 0, 0),
        ];
        assert_eq!(verdict(&program, 0), Ok((14_u32 << 4).wrapping_neg()));
        let division = [instruction(0x3c, 0, 0, 0), instruction(RETURN_CONSTANT, 0, 0, 9)];
        assert_eq!(verdict(&division, 0), Ok(0), "the index is zero");
    }

    #[test]
    fn wrong_programs_are_refused() {
        let end = instruction(RETURN_CONSTANT, 0, 0, 0);
        let wrong: [&[Instruction]; 11] = [
            &[],
            &[instruction(LOAD_RECORD, 0, 0, 0)],
            &[instruction(LOAD_RECORD, 0, 0, 64), end],
            &[instruction(LOAD_RECORD, 0, 0, 2), end],
            &[instruction(0x28, 0, 0, 0), end],
            &[instruction(0x94, 0, 0, 1), end],
            &[instruction(0x34, 0, 0, 0), end],
            &[instruction(0x64, 0, 0, 32), end],
            &[instruction(JUMP, 0, 0, 1), end],
            &[instruction(0x15, 1, 0, 0), end],
            &[instruction(LOAD_SCRATCH, 0, 0, 0), end],
        ];
        for program in wrong {
            assert_eq!(verdict(program, 0), Err(Errno::EINVAL), "{program:?}");
        }
    }
}
