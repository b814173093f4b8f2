//! What is different between two traces.

use abi::trace::Path;

use super::summary::{Calls, Summary};

/// What a row of the difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All calls.
    All,
    /// The calls of one path.
    Path(Path),
    /// The calls of one number.
    Call(u16),
}

/// Figures of the same calls in both traces, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Which calls.
    pub subject: Subject,
    /// Number of calls.
    pub count: [u64; 2],
    /// Mean.
    pub mean_ns: [f64; 2],
    /// Median.
    pub p50_ns: [f64; 2],
    /// 99th percentile.
    pub p99_ns: [f64; 2],
}

impl Row {
    /// Second over first, of the means; nothing where one of them has no calls.
    pub fn ratio(&self) -> Option<f64> {
        let [first, second] = self.mean_ns;
        (self.count.iter().all(|&count| count > 0) && first > 0.0).then(|| second / first)
    }
}

/// The rows of both summaries: all calls, paths, then calls, those with the largest change of time first.
/// Each summary comes with the ticks per second of its clock.
pub fn diff(first: (&Summary, u64), second: (&Summary, u64)) -> Vec<Row> {
    let row = |subject, calls: [Option<&Calls>; 2]| {
        let clocks = [first.1, second.1];
        let of = |value: &dyn Fn(&Calls) -> f64| {
            let ns = |at: usize| {
                calls[at].map_or(0.0, |calls| value(calls) * 1e9 / clocks[at].max(1) as f64)
            };
            [ns(0), ns(1)]
        };
        Row {
            subject,
            count: calls.map(|calls| calls.map_or(0, |calls| calls.total.count())),
            mean_ns: of(&|calls| calls.total.mean()),
            p50_ns: of(&|calls| calls.total.percentile(0.5) as f64),
            p99_ns: of(&|calls| calls.total.percentile(0.99) as f64),
        }
    };
    let mut rows = vec![row(Subject::All, [Some(&first.0.all), Some(&second.0.all)])];
    for path in Path::ALL {
        let calls = [first.0.by_path.get(&path), second.0.by_path.get(&path)];
        if calls.iter().any(Option::is_some) {
            rows.push(row(Subject::Path(path), calls));
        }
    }
    let numbers: std::collections::BTreeSet<u16> =
        first.0.by_call.keys().chain(second.0.by_call.keys()).copied().collect();
    let mut calls: Vec<Row> = numbers
        .into_iter()
        .map(|call| {
            row(Subject::Call(call), [first.0.by_call.get(&call), second.0.by_call.get(&call)])
        })
        .collect();
    let change = |row: &Row| {
        let time = |at: usize| row.mean_ns[at] * row.count[at] as f64;
        (time(1) - time(0)).abs()
    };
    calls.sort_by(|a, b| change(b).total_cmp(&change(a)));
    rows.extend(calls);
    rows
}

#[cfg(test)]
mod tests {
    use abi::trace::Record;

    use super::*;
    use crate::testing;

    fn summary(records: &[Record]) -> Summary {
        let mut summary = Summary::default();
        records.iter().for_each(|record| summary.add(record));
        summary
    }

    #[test]
    fn a_trace_does_not_differ_from_itself() {
        let summary = summary(&testing::calls(1, 100));
        let rows = diff((&summary, 1_000_000_000), (&summary, 1_000_000_000));
        assert_eq!(rows.len(), 1 + 1 + 5);
        assert!(rows.iter().all(|row| row.ratio() == Some(1.0)));
    }

    #[test]
    fn clocks_of_other_rates_are_brought_together() {
        let summary = summary(&testing::calls(1, 100));
        let rows = diff((&summary, 1_000_000_000), (&summary, 2_000_000_000));
        assert_eq!(rows[0].ratio(), Some(0.5));
    }

    #[test]
    fn calls_that_one_trace_lacks_have_no_ratio() {
        let (some, none) = (summary(&testing::calls(1, 100)), Summary::default());
        assert!(diff((&some, 1), (&none, 1)).iter().all(|row| row.ratio().is_none()));
    }
}
