//! `ferry bench compare A B`: two records of the same cases side by side.
//!
//! Only figures that were measured alike say something about a change of Ferry. What else differs is
//! told before the table, with what to do about it.

use std::path::Path;

use anyhow::{Result, bail};

use super::outcome::Outcome;
use super::record::Record;
use super::statistics::{self, Interval};
use super::table::{Table, figure, short_unit};

/// Prints the comparison; an error when there is nothing in common.
pub fn run(first: &Path, second: &Path) -> Result<()> {
    let records = [Record::read(first)?, Record::read(second)?];
    let table = table(&records[0].outcomes, &records[1].outcomes);
    if table.rows.is_empty() {
        bail!(
            "{} and {} have no case in common: compare results of the same suite",
            first.display(),
            second.display()
        );
    }
    for (name, record) in ["A", "B"].iter().zip(&records) {
        println!("{name}: {}", record.summary());
    }
    for warning in differences(&records[0], &records[1]) {
        eprintln!("ferry bench: {warning}");
    }
    print!("{}", table.to_text());
    Ok(())
}

/// What was not alike, in words.
fn differences(a: &Record, b: &Record) -> Vec<String> {
    let (of_a, of_b) = (&a.circumstances, &b.circumstances);
    let processors = [of_a, of_b].map(|of| format!("{} × {}", of.processors, of.processor));
    let machine = [
        ("the processors", processors[0].as_str(), processors[1].as_str()),
        ("the host's kernel", &of_a.host, &of_b.host),
        ("QEMU", &of_a.qemu, &of_b.qemu),
        ("the compiler", &of_a.compiler, &of_b.compiler),
    ];
    let mut differences: Vec<String> = machine
        .iter()
        .filter(|(_, a, b)| a != b)
        .map(|(what, a, b)| {
            format!(
                "{what} differ: A has {a:?}, B has {b:?}. The figures are not comparable, at best their \
                 ratios to the peer are: measure both again on one machine with the same versions"
            )
        })
        .collect();
    if of_a.peer != of_b.peer {
        differences.push(format!(
            "the peers differ: A has {:?}, B has {:?}. Look at Ferry's figures, not at the ratios, or \
             measure again with one of them",
            of_a.peer, of_b.peer
        ));
    }
    if a.cpus() != b.cpus() {
        differences.push(format!(
            "the virtual CPUs differ: A had --cpus {}, B had --cpus {}. Measure one of them again",
            a.cpus().unwrap_or("of the suite"),
            b.cpus().unwrap_or("of the suite")
        ));
    }
    for (name, record) in [("A", a), ("B", b)] {
        if let Some(warning) = record.circumstances.warning() {
            differences.push(format!("{name}: {warning}"));
        }
    }
    differences
}

/// Ferry's figures of the cases that both have, and the ratios to the peer.
fn table(first: &[Outcome], second: &[Outcome]) -> Table {
    let heads = ["case", "unit", "A", "B", "B over A", "95 %", "A over peer", "B over peer"];
    let mut rows = Vec::new();
    for a in first {
        let same = |b: &&Outcome| b.suite == a.suite && b.case == a.case && b.unit == a.unit;
        let Some(b) = second.iter().find(same) else { continue };
        let change = statistics::ratio_interval(&b.samples, &a.samples);
        let interval = change.map_or(String::new(), |Interval { low, high, .. }| {
            format!("{}..{}", figure(Some(low)), figure(Some(high)))
        });
        let (unit, many) = short_unit(&a.unit, a.ferry.into_iter().chain(b.ferry));
        rows.push(vec![
            format!("{}: {}", a.suite, a.case),
            unit,
            figure(a.ferry.map(|value| value / many)),
            figure(b.ferry.map(|value| value / many)),
            figure(change.map(|change| change.middle)),
            interval,
            figure(a.ratio),
            figure(b.ratio),
        ]);
    }
    Table { heads: heads.map(str::to_owned).to_vec(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::{Samples, outcomes};
    use crate::bench::suites;

    fn measured(value: f64) -> Vec<Outcome> {
        let samples = Samples::from([("auto getppid".to_owned(), vec![value; 3])]);
        outcomes(suites::find("null").unwrap(), &samples, false)
    }

    #[test]
    fn common_cases_are_compared_by_their_medians() {
        let rows = table(&measured(100.0), &measured(50.0)).rows;
        assert_eq!(rows.len(), measured(1.0).len());
        assert_eq!(rows[0][2..5], ["100", "50.0", "0.500"]);
        assert_eq!(rows[1][2..5], ["-", "-", "-"]);
    }

    #[test]
    fn cases_that_only_one_has_are_left_out() {
        assert!(table(&measured(1.0), &[]).rows.is_empty());
        let mut renamed = measured(1.0);
        renamed[0].case = "another".to_owned();
        assert_eq!(table(&measured(1.0), &renamed).rows.len(), renamed.len() - 1);
    }

    #[test]
    fn what_was_not_alike_is_told_with_both_values() {
        let mut a = Record::begin(3);
        a.command = vec!["bench".to_owned(), "null".to_owned()];
        a.circumstances.load = 0.0;
        let mut b = a.clone();
        assert!(differences(&a, &b).is_empty());
        b.circumstances.qemu = "QEMU 99".to_owned();
        b.circumstances.peer = "vmlinuz-99".to_owned();
        b.command.extend(["--cpus".to_owned(), "4".to_owned()]);
        let told = differences(&a, &b).join("\n");
        assert_eq!(told.lines().count(), 3, "{told}");
        for word in ["QEMU 99", "vmlinuz-99", "--cpus of the suite", "--cpus 4", "easure"] {
            assert!(told.contains(word), "{word} is missing in {told}");
        }
    }
}
