//! Medians, and bootstrap intervals of medians and of their ratios.
//!
//! The bootstrap draws the samples of each side with replacement and takes the median, or the ratio of
//! the medians, of each draw (Efron's percentile method). Its generator has a fixed seed, so that the same samples always give
//! the same interval.

/// Draws of the bootstrap.
const DRAWS: usize = 2000;

/// A value and the interval in which it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median, or the ratio of the medians.
    pub middle: f64,
    /// 2.5th percentile.
    pub low: f64,
    /// 97.5th percentile.
    pub high: f64,
}

/// The median; `None` for no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// The median of samples with its interval; `None` for no samples.
pub fn median_interval(samples: &[f64]) -> Option<Interval> {
    let middle = median(samples)?;
    bootstrap(middle, |generator| median(&generator.resample(samples)))
}

/// The ratio of the medians of two samples with its interval; `None` when either is empty or the
/// second has a median of zero.
pub fn ratio_interval(numerator: &[f64], denominator: &[f64]) -> Option<Interval> {
    let ratio = |above: &[f64], below: &[f64]| {
        let below = median(below)?;
        if below == 0.0 { None } else { Some(median(above)? / below) }
    };
    let middle = ratio(numerator, denominator)?;
    bootstrap(middle, |generator| {
        ratio(&generator.resample(numerator), &generator.resample(denominator))
    })
}

/// The interval of what `draw` makes of samples drawn anew.
fn bootstrap(middle: f64, draw: impl Fn(&mut Generator) -> Option<f64>) -> Option<Interval> {
    let mut generator = Generator(0x9e37_79b9_7f4a_7c15);
    let mut draws: Vec<f64> = (0..DRAWS).filter_map(|_| draw(&mut generator)).collect();
    draws.sort_by(f64::total_cmp);
    let percentile =
        |share: f64| draws.get(((draws.len().saturating_sub(1)) as f64 * share).round() as usize);
    Some(Interval { middle, low: *percentile(0.025)?, high: *percentile(0.975)? })
}

/// A small generator (xorshift64*); quality beyond even draws does not matter here.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    }

    fn resample(&mut self, samples: &[f64]) -> Vec<f64> {
        let count = samples.len() as u64;
        samples.iter().map(|_| samples[(self.next() % count) as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn constant_samples_have_an_interval_of_no_width() {
        let interval = ratio_interval(&[2.0; 5], &[4.0; 5]).unwrap();
        assert_eq!(interval, Interval { middle: 0.5, low: 0.5, high: 0.5 });
    }

    #[test]
    fn the_interval_of_a_median_lies_within_the_samples() {
        let interval = median_interval(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert_eq!(interval.middle, 3.0);
        assert!(1.0 <= interval.low && interval.low < 3.0 && interval.high > 3.0);
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn the_interval_holds_the_ratio_and_grows_with_the_spread() {
        let narrow = ratio_interval(&[9.0, 10.0, 11.0], &[10.0; 3]).unwrap();
        let wide = ratio_interval(&[5.0, 10.0, 15.0], &[10.0; 3]).unwrap();
        assert!(narrow.low <= narrow.middle && narrow.middle <= narrow.high);
        assert!(wide.high - wide.low > narrow.high - narrow.low);
    }

    #[test]
    fn without_samples_or_with_a_zero_there_is_no_ratio() {
        assert_eq!(ratio_interval(&[], &[1.0]), None);
        assert_eq!(ratio_interval(&[1.0], &[0.0]), None);
    }
}
