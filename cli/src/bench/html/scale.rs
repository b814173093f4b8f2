//! Scales of axes: where a value lies, and where ticks stand with which labels.
//!
//! A scale is logarithmic where the values span more than a linear one shows, and linear from zero
//! otherwise, so that lengths mean something. Positions are logarithms or the values themselves; the
//! plotting library sees positions only and needs one kind of axis.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Values further apart than this get a logarithmic scale.
const LINEAR_SPAN: f64 = 12.0;
/// Most values that get a tick each.
const MOST_OWN_TICKS: usize = 10;
/// Ticks nearer to one another than this share of the axis would have their labels run together.
const LEAST_DISTANCE: f64 = 0.1;

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    is_logarithmic: bool,
    /// Positions of both ends.
    pub range: Range<f64>,
    /// Positions of the ticks.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// For values of which any may be drawn.
    pub fn of_values(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = match bounds(values) {
            (0.0, 0.0) => (0.0, 1.0),
            bounds => bounds,
        };
        if low > 0.0 && high / low > LINEAR_SPAN {
            Scale::logarithmic(low, high)
        } else {
            let step = linear_step(high.max(-low).max(f64::MIN_POSITIVE));
            let (first, last) = ((low.min(0.0) / step).floor(), (high.max(0.0) / step).ceil());
            let ticks = (0..=(last - first) as u32).map(|at| (first + f64::from(at)) * step);
            let ticks: Vec<f64> = ticks.collect();
            Scale { is_logarithmic: false, range: first * step..last * step, ticks }
        }
    }

    /// For ratios: logarithmic, so that a half is as far from 1 as 2 is, with 1 on it.
    pub fn of_ratios(ratios: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = bounds(ratios.filter(|ratio| *ratio > 0.0).chain([0.8, 1.25]));
        Scale::logarithmic(low, high)
    }

    /// For rows one below the other, without ticks.
    pub fn rows(count: usize) -> Scale {
        Scale { is_logarithmic: false, range: 0.0..count as f64, ticks: Vec::new() }
    }

    /// For what is varied: a tick at each value where they are few, and room beside the outer ones.
    pub fn of_varied(values: &[f64]) -> Scale {
        let mut scale = Scale::of_values(values.iter().copied());
        if values.len() <= MOST_OWN_TICKS && !values.is_empty() {
            scale.ticks = values.iter().map(|value| scale.at(*value)).collect();
            let (low, high) = bounds(scale.ticks.iter().copied());
            scale.range = if low < high { low..high } else { low - 0.5..high + 0.5 };
            let least = (scale.range.end - scale.range.start) * LEAST_DISTANCE;
            let mut last = f64::MIN;
            scale.ticks.retain(|tick| {
                let has_room = tick - last >= least;
                last = if has_room { *tick } else { last };
                has_room
            });
        }
        let room = (scale.range.end - scale.range.start) * 0.04;
        scale.range = scale.range.start - room..scale.range.end + room;
        scale
    }

    fn logarithmic(low: f64, high: f64) -> Scale {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let of_steps = |steps: &'static [f64]| {
            let powers = first..=last;
            powers.flat_map(|power| steps.iter().map(move |step| f64::from(power) + step.log10()))
        };
        // The scale ends at the nearest 1, 2 or 5 that holds everything.
        let ends = || of_steps(&[1.0, 2.0, 5.0]);
        let (low, high) = (low.log10() + 1e-9, high.log10() - 1e-9);
        let start = ends().filter(|end| *end <= low).fold(f64::MIN, f64::max);
        let end = ends().filter(|end| *end >= high).fold(f64::MAX, f64::min);
        let decades = end - start;
        let steps: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let every = if decades > 8.0 { (decades / 6.0).ceil() as usize } else { 1 };
        let ticks = of_steps(steps).filter(|tick| (start..=end).contains(tick));
        let ticks = ticks.step_by(every).collect();
        Scale { is_logarithmic: true, range: start..end, ticks }
    }

    /// Whether equal distances are equal factors.
    pub fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    /// The position of a value; what a logarithmic scale has no place for is at its beginning.
    pub fn at(&self, value: f64) -> f64 {
        match self.is_logarithmic {
            true if value > 0.0 => value.log10(),
            true => self.range.start,
            false => value,
        }
    }

    /// What stands at a tick.
    pub fn label(&self, position: f64) -> String {
        let value = if self.is_logarithmic { 10f64.powf(position) } else { position };
        let (value, suffix) = match value.abs() {
            size if size >= 0.999_999e9 => (value / 1e9, " G"),
            size if size >= 0.999_999e6 => (value / 1e6, " M"),
            _ => (value, ""),
        };
        // Digits beyond these are those of rounding.
        let digits = if value == 0.0 { 0 } else { (4 - value.abs().log10().floor() as i32).max(0) };
        let text = format!("{value:.*}", digits as usize);
        let text = if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            &text
        };
        format!("{text}{suffix}")
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (position - self.range.start) / (self.range.end - self.range.start);
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Light lines between the ticks are not drawn.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// The least and the largest value; 0 and 1 when there is none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// A step of 1, 2 or 5 times a power of ten that has at most six ticks below `high`.
fn linear_step(high: f64) -> f64 {
    let least = high / 6.0;
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks.iter().map(|tick| scale.label(*tick)).collect()
    }

    #[test]
    fn near_values_have_a_linear_scale_from_zero() {
        let scale = Scale::of_values([40.0, 110.0].into_iter());
        assert_eq!(scale.range, 0.0..120.0);
        assert_eq!(labels(&scale), ["0", "20", "40", "60", "80", "100", "120"]);
        assert_eq!(scale.at(40.0), 40.0);
    }

    #[test]
    fn far_values_have_a_logarithmic_scale_that_holds_them() {
        let scale = Scale::of_values([3.0, 90_000.0].into_iter());
        assert_eq!(labels(&scale), ["10", "100", "1000", "10000", "100000"]);
        assert_eq!(scale.range, 2f64.log10()..5.0);
        assert_eq!((scale.at(100.0), scale.at(0.0)), (2.0, 2f64.log10()));
    }

    #[test]
    fn ratios_have_one_on_their_scale() {
        let scale = Scale::of_ratios([0.3, 0.0].into_iter());
        assert_eq!(labels(&scale), ["0.2", "0.5", "1", "2"]);
        assert_eq!(labels(&Scale::of_ratios(std::iter::empty())), ["0.5", "1", "2"]);
    }

    #[test]
    fn a_few_varied_values_have_a_tick_each() {
        let scale = Scale::of_varied(&[1.0, 4.0, 16.0, 64.0]);
        assert!(scale.is_logarithmic());
        assert_eq!(labels(&scale), ["1", "4", "16", "64"]);
        assert!(scale.range.start < scale.at(1.0) && scale.at(64.0) < scale.range.end);
        let near = Scale::of_varied(&[4.0, 6.0, 8.0]);
        assert!(near.range.start > 3.0 && near.range.end < 9.0, "{near:?}");
        let same = Scale::of_varied(&[1.0]);
        assert!(same.range.start < 1.0 && same.range.end > 1.0);
    }

    #[test]
    fn ticks_keep_their_distance() {
        let scale = Scale::of_varied(&[100.0, 1000.0, 10_000.0, 11_000.0]);
        assert_eq!(labels(&scale), ["100", "1000", "10000"]);
    }

    #[test]
    fn nothing_and_zeros_have_a_scale_too() {
        for values in [vec![], vec![0.0], vec![0.0, 0.0]] {
            let scale = Scale::of_values(values.iter().copied());
            assert!(scale.range.start <= 0.0 && scale.range.end > 0.0, "{scale:?}");
            assert!(scale.ticks.len() < 20);
        }
    }

    #[test]
    fn large_and_small_labels_stay_short() {
        let scale = Scale::of_values([1e-3, 1e9].into_iter());
        let labels = labels(&scale);
        assert_eq!(labels.first().map(String::as_str), Some("0.001"));
        assert!(labels.iter().all(|label| label.len() <= 6), "{labels:?}");
    }
}
