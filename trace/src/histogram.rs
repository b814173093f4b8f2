//! A distribution in bounded memory.

/// Buckets per doubling.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts values so that percentiles can be told within 1 in 128; counts, sum and worst are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    worst: u64,
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.worst = self.worst.max(value);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Mean of the values; 0 without any.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The largest value; 0 without any.
    pub fn worst(&self) -> u64 {
        self.worst
    }

    /// The value that `share` of the values (0 to 1) do not exceed; 0 without any.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(bucket).min(self.worst);
            }
        }
        self.worst
    }

    /// Number of values in each range from one of `bounds` to the next, in order; the first range is what
    /// is below the first bound, the last what is not below the last. Values near a bound may be counted
    /// beside it, within 1 in 128.
    pub fn ranges(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        for (bucket, count) in self.buckets.iter().enumerate() {
            counts[bounds.partition_point(|&bound| bound <= upper(bucket))] += count;
        }
        counts
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = u64::BITS - value.leading_zeros() - 1 - STEP_BITS;
    let index = (u64::from(shift) + 1) * STEPS + ((value >> shift) - STEPS);
    index as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let first = (STEPS + bucket % STEPS) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5_000).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let bucket = bucket(value);
            assert!(value <= upper(bucket), "{value}");
            assert!(bucket == 0 || upper(bucket - 1) < value, "{value}");
            assert!((upper(bucket) - value) as f64 <= value as f64 / 128.0);
        }
    }

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.add(value));
        assert_eq!((histogram.count(), histogram.worst()), (10_000, 10_000));
        assert_eq!(histogram.mean(), 5_000.5);
        for (share, wanted) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.999, 9_990.0)] {
            let found = histogram.percentile(share) as f64;
            assert!((found / wanted - 1.0).abs() <= 1.0 / 128.0, "{share}: {found}");
        }
        assert_eq!(histogram.percentile(1.0), 10_000);
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Histogram::default().percentile(0.5), 0);
        assert_eq!(Histogram::default().mean(), 0.0);
    }

    #[test]
    fn ranges_cover_everything_once() {
        let mut histogram = Histogram::default();
        [1, 5, 50, 500, 5_000].into_iter().for_each(|value| histogram.add(value));
        assert_eq!(histogram.ranges(&[10, 100, 1_000]), [2, 1, 1, 1]);
    }
}
