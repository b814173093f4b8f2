//! What the model wants to know of an x86-64 instruction, from its bytes.
//!
//! A plugin sees no registers, so what a CPU does to its own state is recognised by the instruction.

/// The displacement of the marker `nopl MARKER + 16 * region + kind(%rax)`.
pub const MARKER: u32 = 0x4665_7200;
/// Regions that markers can name.
pub const REGIONS: usize = 32;

const BEGIN: u32 = 1;
const END: u32 = 2;
const RESET: u32 = 3;

/// An instruction, as far as the model cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `syscall`.
    SystemCall,
    /// `sysret` and `iretq`: perhaps into user code.
    Return,
    /// `mov %reg, %cr3`: an address space is loaded.
    LoadAddressSpace,
    /// `invlpg`.
    FlushPage,
    /// `hlt`.
    Halt,
    /// `pause`.
    Pause,
    /// A `nop` of one byte; several in a row are a pause where `pause` is slow.
    Nop,
    /// A `nop` of two bytes: in a loop of a few instructions that stores nothing, a pause; else padding.
    ShortNop,
    /// A string instruction with a repeat prefix: executed once for each element.
    RepeatedString,
    /// What follows counts, for this region.
    Begin(u8),
    /// What follows does not count.
    End,
    /// What was counted for this region is forgotten.
    Reset(u8),
    /// Anything else.
    Other,
}

/// Recognises an instruction.
pub fn kind(bytes: &[u8]) -> Kind {
    let is_legacy_prefix = |byte: &u8| {
        matches!(byte, 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65)
    };
    let prefixes = bytes.iter().take_while(|byte| is_legacy_prefix(byte)).count();
    let (prefixes, mut rest) = bytes.split_at(prefixes);
    let is_repeated = prefixes.iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
    let mut is_wide = false;
    if let [first @ 0x40..=0x4f, after @ ..] = rest {
        is_wide = first & 8 != 0;
        rest = after;
    }
    match rest {
        [0x0f, 0x05, ..] => Kind::SystemCall,
        [0x0f, 0x07, ..] => Kind::Return,
        [0xcf] if is_wide => Kind::Return,
        [0x0f, 0x22, registers] if registers >> 3 & 7 == 3 => Kind::LoadAddressSpace,
        [0x0f, 0x01, operand, ..] if operand >> 3 & 7 == 7 && operand >> 6 != 3 => Kind::FlushPage,
        [0xf4] => Kind::Halt,
        [0x90] if prefixes == [0xf3] => Kind::Pause,
        [0x90] if prefixes.is_empty() => Kind::Nop,
        [0x90] if prefixes == [0x66] => Kind::ShortNop,
        [0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf] if is_repeated => Kind::RepeatedString,
        [0x0f, 0x1f, 0x80, a, b, c, d] => marker(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => Kind::Other,
    }
}

fn marker(displacement: u32) -> Kind {
    let offset = displacement.wrapping_sub(MARKER);
    let Ok(region) = u8::try_from(offset >> 4) else { return Kind::Other };
    match (usize::from(region) < REGIONS, offset & 0xf) {
        (true, BEGIN) => Kind::Begin(region),
        (true, END) => Kind::End,
        (true, RESET) => Kind::Reset(region),
        _ => Kind::Other,
    }
}

/// Whether a program's file has a marker that begins a region.
pub fn has_marker(program: &[u8]) -> bool {
    let starts = |at: usize| matches!(program.get(at..at + 7).map(kind), Some(Kind::Begin(_)));
    program.windows(3).enumerate().any(|(at, bytes)| bytes == [0x0f, 0x1f, 0x80] && starts(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_recognised() {
        let cases: &[(&[u8], Kind)] = &[
            (&[0x0f, 0x05], Kind::SystemCall),
            (&[0x48, 0x0f, 0x07], Kind::Return),
            (&[0x48, 0xcf], Kind::Return),
            (&[0xcf], Kind::Other),
            (&[0x0f, 0x22, 0xd8], Kind::LoadAddressSpace),
            (&[0x41, 0x0f, 0x22, 0xdf], Kind::LoadAddressSpace),
            (&[0x0f, 0x22, 0xe0], Kind::Other),
            (&[0x0f, 0x20, 0xd8], Kind::Other),
            (&[0x0f, 0x01, 0x38], Kind::FlushPage),
            (&[0x0f, 0x01, 0xf8], Kind::Other),
            (&[0xf4], Kind::Halt),
            (&[0xf3, 0x90], Kind::Pause),
            (&[0x90], Kind::Nop),
            (&[0x66, 0x90], Kind::ShortNop),
            (&[0xf3, 0xa4], Kind::RepeatedString),
            (&[0xf3, 0x48, 0xab], Kind::RepeatedString),
            (&[0xa4], Kind::Other),
            (&[0xf3, 0x0f, 0x10, 0xa4], Kind::Other),
            (&[], Kind::Other),
        ];
        for (bytes, expected) in cases {
            assert_eq!(kind(bytes), *expected, "{bytes:x?}");
        }
    }

    #[test]
    fn markers_name_their_region() {
        let nop =
            |displacement: u32| [&[0x0f, 0x1f, 0x80][..], &displacement.to_le_bytes()].concat();
        assert_eq!(kind(&nop(MARKER + 1)), Kind::Begin(0));
        assert_eq!(kind(&nop(MARKER + 0x51)), Kind::Begin(5));
        assert_eq!(kind(&nop(MARKER + 0x1f1)), Kind::Begin(31));
        assert_eq!(kind(&nop(MARKER + 0x201)), Kind::Other);
        assert_eq!(kind(&nop(MARKER - 15)), Kind::Other);
        assert_eq!(kind(&nop(MARKER + 2)), Kind::End);
        assert_eq!(kind(&nop(MARKER + 0x33)), Kind::Reset(3));
        assert_eq!(kind(&nop(MARKER + 4)), Kind::Other);
        assert_eq!(kind(&nop(0x1000)), Kind::Other);
        let program = [&[0x0f, 0x1f, 0x0f, 0x1f][..], &nop(0), &nop(MARKER + 0x11)].concat();
        assert!(has_marker(&program));
        assert!(!has_marker(&program[..program.len() - 1]));
    }
}
