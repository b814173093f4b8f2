//! Registers of a user thread that can never run: the same bookkeeping as on x86-64, with x87 and SSE
//! as the only floating-point state.

use core::ops::Range;

use super::registers::{Registers, answered_by_registers};
use super::xsave;
use crate::contract::UserContext;

/// x87 and SSE.
const COMPONENTS: u64 = 3;
/// With denormals-are-zero, as every processor of the last twenty years.
const MXCSR_MASK: u32 = 0xffff;
const RESET: xsave::ResetValues = xsave::ResetValues { mxcsr_mask: MXCSR_MASK, keys_offset: None };

/// Registers of a user thread.
pub struct Context {
    registers: Registers,
    thread_pointer: u64,
    second_pointer: u64,
    fpu: [u8; xsave::LEAST_SIZE],
}

impl UserContext for Context {
    fn new(entry: u64, stack: u64) -> Self {
        let mut fpu = [0; xsave::LEAST_SIZE];
        xsave::reset(&mut fpu, &RESET);
        Self { registers: Registers::new(entry, stack), thread_pointer: 0, second_pointer: 0, fpu }
    }

    fn duplicate(&self) -> Self {
        Self { ..*self }
    }

    answered_by_registers!();

    fn thread_pointer(&self) -> u64 {
        self.thread_pointer
    }

    fn set_thread_pointer(&mut self, value: u64) {
        self.thread_pointer = value;
    }

    fn second_pointer(&self) -> u64 {
        self.second_pointer
    }

    fn set_second_pointer(&mut self, value: u64) {
        self.second_pointer = value;
    }

    fn fpu_size() -> usize {
        xsave::LEAST_SIZE
    }

    fn fpu_parts(components: u64) -> [Range<usize>; 2] {
        xsave::parts(components, xsave::LEAST_SIZE, None)
    }

    fn fpu(&self) -> &[u8] {
        &self.fpu
    }

    fn read_fpu(&self, into: &mut [u8]) {
        let count = into.len().min(self.fpu.len());
        into[..count].copy_from_slice(&self.fpu[..count]);
    }

    fn write_fpu(&mut self, from: &[u8]) -> bool {
        let Some(state) = from.first_chunk::<{ xsave::LEAST_SIZE }>() else { return false };
        let valid = xsave::is_valid(state, COMPONENTS, MXCSR_MASK);
        if valid {
            self.fpu = *state;
        }
        valid
    }

    fn fill_fpu(&mut self, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let valid = fill(&mut self.fpu) && xsave::is_valid(&self.fpu, COMPONENTS, MXCSR_MASK);
        if !valid {
            self.reset_fpu();
        }
        valid
    }

    fn reset_fpu(&mut self) {
        xsave::reset(&mut self.fpu, &RESET);
    }
}
