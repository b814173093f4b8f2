//! `ferry bench compare A B`: two records of the same cases side by side.

use std::path::Path;

use anyhow::{Result, bail};

use super::outcome::{Outcome, figure, print_columns};
use super::record::Record;
use super::statistics::{self, Interval};

const HEADS: [&str; 6] = ["case", "unit", "A", "B", "B over A", "95 %"];

/// Prints the comparison; an error when there is nothing in common.
pub fn run(first: &Path, second: &Path) -> Result<()> {
    let records = [Record::read(first)?, Record::read(second)?];
    let rows = rows(&records[0].outcomes, &records[1].outcomes);
    if rows.is_empty() {
        bail!(
            "{} and {} have no case in common: compare results of the same suite",
            first.display(),
            second.display()
        );
    }
    for (name, record) in ["A", "B"].iter().zip(&records) {
        let of = &record.circumstances;
        println!("{name}: {}, {}, {}", of.commit, of.processor, of.qemu);
    }
    print_columns(&HEADS, &rows);
    Ok(())
}

/// Ferry's figures of the cases that both have.
fn rows(first: &[Outcome], second: &[Outcome]) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for a in first {
        let same = |b: &&Outcome| b.suite == a.suite && b.case == a.case && b.unit == a.unit;
        let Some(b) = second.iter().find(same) else { continue };
        let change = statistics::ratio_interval(&b.samples, &a.samples);
        let interval = change.map_or(String::new(), |Interval { low, high, .. }| {
            format!("{}..{}", figure(Some(low)), figure(Some(high)))
        });
        rows.push([
            format!("{}: {}", a.suite, a.case),
            a.unit.clone(),
            figure(a.ferry),
            figure(b.ferry),
            figure(change.map(|change| change.middle)),
            interval,
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::{Samples, outcomes};
    use crate::bench::suites;

    fn measured(value: f64) -> Vec<Outcome> {
        let samples = Samples::from([("local getppid".to_owned(), vec![value; 3])]);
        outcomes(suites::find("null").unwrap(), &samples, false)
    }

    #[test]
    fn common_cases_are_compared_by_their_medians() {
        let rows = rows(&measured(100.0), &measured(50.0));
        assert_eq!(rows.len(), measured(1.0).len());
        assert_eq!(rows[0][2..5], ["100", "50.0", "0.500"]);
        assert_eq!(rows[1][2..5], ["-", "-", "-"]);
    }

    #[test]
    fn cases_that_only_one_has_are_left_out() {
        assert!(rows(&measured(1.0), &[]).is_empty());
        let mut renamed = measured(1.0);
        renamed[0].case = "another".to_owned();
        assert_eq!(rows(&measured(1.0), &renamed).len(), renamed.len() - 1);
    }
}
