//! The standard XSAVE format: layout of the header, the reset state, and the check that makes it safe
//! to load bytes which user space wrote.
//!
//! Pure functions over bytes, used by the hosted machine too. Intel SDM volume 1, chapter 13.4.

use core::ops::Range;

/// Bytes of the legacy region and the header together: the least a state has.
pub(crate) const LEAST_SIZE: usize = 576;

/// Most bytes that any state has here.
#[cfg(target_os = "none")]
pub(crate) const MOST_SIZE: usize = 4096;

const CONTROL_WORD: usize = 0;
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
const HEADER: usize = 512;
const HEADER_END: usize = 576;
/// MXCSR bits of every processor with DAZ.
const MXCSR_VALID: u32 = 0xffff;

/// PKRU of a new program: it may access data of protection key 0 alone.
pub(crate) const KEYS_AT_RESET: u32 = 0x5555_5554;
/// Bit of PKRU among the components.
const COMPONENT_KEYS: u64 = 1 << 9;

/// Bytes of PKRU with its padding.
const KEYS_SIZE: usize = 8;
/// The upper halves of the vector registers, which follow the header.
const COMPONENT_AVX: u64 = 1 << 2;
const AVX_END: usize = 832;
/// x87, SSE and AVX.
const COMPONENTS_AT_START: u64 = 7;

/// What the state after reset depends on.
pub(crate) struct ResetValues {
    /// Bits of MXCSR that the processor allows.
    pub(crate) mxcsr_mask: u32,
    /// Where PKRU lies, when it is part of the state.
    pub(crate) keys_offset: Option<usize>,
}

/// Where a state of `size` bytes that has these components has its bytes (`UserContext::fpu_parts`):
/// programs mostly use the first three, which lie at its start, and PKRU, which lies at its end.
pub(crate) fn parts(components: u64, size: usize, keys_offset: Option<usize>) -> [Range<usize>; 2] {
    let keys = match keys_offset {
        Some(offset) if components & COMPONENT_KEYS != 0 => offset..size.min(offset + KEYS_SIZE),
        _ => size..size,
    };
    let other = components & !COMPONENT_KEYS;
    if other & !COMPONENTS_AT_START != 0 {
        [0..size, size..size]
    } else if other & COMPONENT_AVX != 0 {
        [0..AVX_END.min(size), keys]
    } else {
        [0..LEAST_SIZE.min(size), keys]
    }
}

/// Writes the state after reset: all exceptions masked, no data but that of protection key 0,
/// everything else in its initial configuration. What lies behind the header is left alone: the header
/// says that it is not used.
pub(crate) fn reset(area: &mut [u8], values: &ResetValues) {
    let used = area.len().min(LEAST_SIZE);
    if let Some(used) = area.get_mut(..used) {
        used.fill(0);
    }
    put(area, MXCSR_MASK, &values.mxcsr_mask.to_le_bytes());
    if let Some(offset) = values.keys_offset {
        put(area, offset, &KEYS_AT_RESET.to_le_bytes());
        put(area, HEADER, &COMPONENT_KEYS.to_le_bytes());
    }
    put(area, CONTROL_WORD, &0x037f_u16.to_le_bytes());
    put(area, MXCSR, &0x1f80_u32.to_le_bytes());
}

/// Whether XRSTOR takes the bytes without a fault when the components `enabled` are switched on.
/// `mxcsr_mask` is what this processor allows (0: the default of the architecture).
pub(crate) fn is_valid(area: &[u8], enabled: u64, mxcsr_mask: u32) -> bool {
    let (Some(header), Some(mxcsr)) = (area.get(HEADER..HEADER_END), area.get(MXCSR..MXCSR + 4))
    else {
        return false;
    };
    let (Some(components), Some(reserved)) = (header.first_chunk::<8>(), header.get(8..)) else {
        return false;
    };
    let Some(mxcsr) = mxcsr.first_chunk::<4>() else { return false };
    let allowed = if mxcsr_mask == 0 { 0xffbf } else { mxcsr_mask } & MXCSR_VALID;
    u64::from_le_bytes(*components) & !enabled == 0
        && is_zero(reserved)
        && u32::from_le_bytes(*mxcsr) & !allowed == 0
}

/// Whether bytes, of which there are whole words, are all zero.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word)) == 0
        && rest.iter().all(|byte| *byte == 0)
}

/// What the processor reported as its valid MXCSR bits when it saved `area`.
#[cfg(target_os = "none")]
pub(crate) fn mxcsr_mask(area: &[u8]) -> u32 {
    area.get(MXCSR_MASK..)
        .and_then(|bytes| bytes.first_chunk::<4>())
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn put(area: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(slot) = area.get_mut(at..at + bytes.len()) {
        slot.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> [u8; LEAST_SIZE] {
        let mut area = [0xaa; LEAST_SIZE];
        reset(&mut area, &ResetValues { mxcsr_mask: 0, keys_offset: None });
        area
    }

    #[test]
    fn the_reset_state_is_valid() {
        assert!(is_valid(&fresh(), 3, 0));
    }

    #[test]
    fn a_new_state_forbids_all_protection_keys_but_the_first() {
        let mut area = [0xaa; LEAST_SIZE + 64];
        reset(&mut area, &ResetValues { mxcsr_mask: 0, keys_offset: Some(LEAST_SIZE) });
        assert_eq!(area[LEAST_SIZE..LEAST_SIZE + 4], KEYS_AT_RESET.to_le_bytes());
        assert_eq!(area[HEADER..HEADER + 8], COMPONENT_KEYS.to_le_bytes());
        assert!(is_valid(&area, 3 | COMPONENT_KEYS, 0));
        assert!(!is_valid(&area, 3, 0), "where keys are not part of the state");
    }

    #[test]
    fn a_state_has_its_bytes_where_its_components_are() {
        const SIZE: usize = 900;
        const KEYS: Option<usize> = Some(892);
        assert_eq!(parts(3, SIZE, KEYS), [0..576, SIZE..SIZE]);
        assert_eq!(parts(7 | COMPONENT_KEYS, SIZE, KEYS), [0..832, 892..SIZE]);
        assert_eq!(parts(0x20, SIZE, KEYS), [0..SIZE, SIZE..SIZE], "a component between");
        assert_eq!(parts(7, LEAST_SIZE, None), [0..576, 576..576]);
    }

    #[test]
    fn states_that_would_fault_are_refused() {
        for (at, value) in
            [(HEADER, 4), (HEADER + 7, 0x80), (HEADER + 8, 1), (HEADER + 63, 1), (MXCSR + 2, 1)]
        {
            let mut area = fresh();
            area[at] = value;
            assert!(!is_valid(&area, 3, 0), "byte {at}");
        }
        assert!(!is_valid(&fresh()[..LEAST_SIZE - 1], 3, 0), "too short");
        let mut area = fresh();
        area[MXCSR] = 0x40;
        assert!(!is_valid(&area, 3, 0), "denormals-are-zero without support");
        assert!(is_valid(&area, 3, 0xffff));
    }
}
