//! Durations in 16 bits.

/// A duration in ticks of the trace's clock, in 16 bits: five of exponent, eleven of mantissa.
///
/// Exact below 4,096 ticks; above, rounded to the nearest value with twelve significant bits, so it is off
/// by at most 1 in 4,096. What is longer than [`LONGEST`] becomes that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u16);

/// The longest duration that can be written, in ticks: 73 minutes of a clock with 1 ns.
pub const LONGEST: u64 = 4095 << 30;

const MANTISSA_BITS: u32 = 11;
const IMPLIED: u64 = 1 << MANTISSA_BITS;

impl Duration {
    /// The nearest duration that can be written.
    #[inline]
    pub const fn from_ticks(ticks: u64) -> Duration {
        // With exponents 0 and 1 the code is the number itself.
        if ticks < 2 * IMPLIED {
            return Duration(ticks as u16);
        }
        if ticks >= LONGEST {
            return Duration(u16::MAX);
        }
        let shift = u64::BITS - ticks.leading_zeros() - (MANTISSA_BITS + 1);
        // What is rounded up to the next power of two carries over into the exponent, as it should.
        let rounded = (ticks + (1 << (shift - 1))) >> shift;
        // Both parts are within their bits: `ticks` is below `LONGEST`.
        Duration(((shift as u16 + 1) << MANTISSA_BITS) + (rounded - IMPLIED) as u16)
    }

    /// In ticks of the trace's clock.
    pub const fn ticks(self) -> u64 {
        let mantissa = (self.0 & (IMPLIED as u16 - 1)) as u64;
        match self.0 >> MANTISSA_BITS {
            0 => mantissa,
            exponent => (IMPLIED + mantissa) << (exponent - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_codes_survive_and_are_in_order() {
        let mut last = None;
        for code in 0..=u16::MAX {
            let ticks = Duration(code).ticks();
            assert_eq!(Duration::from_ticks(ticks), Duration(code));
            assert!(last.is_none_or(|last| last < ticks));
            last = Some(ticks);
        }
        assert_eq!(last, Some(LONGEST));
    }

    #[test]
    fn short_ones_are_exact_and_long_ones_nearly() {
        for ticks in 0..4096 {
            assert_eq!(Duration::from_ticks(ticks).ticks(), ticks);
        }
        for shift in 0..30 {
            for near in [4096_u64, 4097, 5001, 6143, 8190, 8191] {
                let ticks = (near << shift) + (1 << shift) / 3;
                let error = Duration::from_ticks(ticks).ticks().abs_diff(ticks);
                assert!(error * 4096 <= ticks, "{ticks} is off by {error}");
            }
        }
        assert_eq!(Duration::from_ticks(u64::MAX).ticks(), LONGEST);
    }
}
