//! `ferry bench record DIR`: keeps results in the source tree and makes `docs/results.md` of all that
//! are kept there.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Result, bail};

use super::curves::plots;
use super::outputs::write;
use super::record::Record;
use super::suites::SUITES;
use super::table;
use super::{calibration, modelled};
use crate::run::source_root;

/// Keeps the results in `directory`: one file per suite.
pub fn run(directory: &Path) -> Result<()> {
    let record = Record::read(directory)?;
    let kept = source_root().join("bench/results");
    let names = record.suites();
    if names.is_empty() {
        bail!("{} has no outcomes to keep", directory.display());
    }
    for name in names {
        let text = serde_json::to_string_pretty(&of_suite(&record, name))? + "\n";
        std::fs::create_dir_all(&kept)?;
        write(&kept.join(format!("{name}.json")), &text)?;
    }
    let mut records = Vec::new();
    for suite in SUITES {
        let path = kept.join(format!("{}.json", suite.name));
        if path.exists() {
            records.push((suite.name, suite.about, Record::read(&path)?));
        }
    }
    let page = source_root().join("docs/results.md");
    write(&page, &markdown(&records))?;
    println!("wrote {}", page.display());
    Ok(())
}

/// What a record says about one suite.
fn of_suite(record: &Record, name: &str) -> Record {
    let mut of_suite = record.clone();
    of_suite.outcomes.retain(|row| row.suite == name);
    of_suite.modelled.retain(|side| side.suite == name);
    of_suite.calibration.retain(|figure| figure.suite == name);
    // Failures begin with the suite's name, and then the side or what happened.
    of_suite.failures.retain(|failure| {
        failure.strip_prefix(name).is_some_and(|rest| rest.starts_with([',', ':']))
    });
    of_suite
}

fn markdown(records: &[(&str, &str, Record)]) -> String {
    let mut page = String::from(
        "# Results\n\nMade by `ferry bench record` from `bench/results`; not edited by hand. A figure is \
         the median over the repeats; a ratio is that of the medians, with its 95 % bootstrap interval. \
         Results are those of one machine at one time: a virtual machine under emulation, unless the \
         case says *native*.\n",
    );
    for (name, about, record) in records {
        let of = &record.circumstances;
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "\n## `{name}`\n\n{}.\n\n`ferry {}`, {} repeats, commit {}. {}, {} processors, load {:.1}, {}; {}; \
             peer {}; {}.\n\n",
            capitalised(about),
            record.command.join(" "),
            record.repeats,
            of.commit,
            of.processor,
            of.processors,
            of.load,
            of.host,
            of.qemu,
            of.peer,
            of.compiler,
        );
        let cases = || record.outcomes.iter().filter(|outcome| outcome.plot.is_none());
        let mut cases_table = table::cases(cases());
        cases_table.heads.push("papers".to_owned());
        for (row, outcome) in cases_table.rows.iter_mut().zip(cases()) {
            row.push(outcome.paper.clone().unwrap_or_default());
        }
        if !cases_table.rows.is_empty() {
            page += &cases_table.to_markdown();
        }
        for plot in plots(&record.outcomes) {
            let _ = write!(page, "\n### {}\n\n{}", plot.title, table::curves(&plot).to_markdown());
            for paper in plot.papers() {
                let _ = writeln!(page, "\nPapers: {paper}");
            }
        }
        let counted: Vec<_> = cases().filter(|outcome| !outcome.counters.is_empty()).collect();
        if !counted.is_empty() {
            page += "\nCounted beside:\n\n";
        }
        for outcome in counted {
            let _ = writeln!(page, "- {}: {}", outcome.case, table::details(outcome).join("; "));
        }
        if let Some(head) = modelled::head(&record.modelled) {
            let table = modelled::table(&record.modelled).to_markdown();
            let _ = write!(page, "\n{head}\n\n{table}");
        }
        for note in modelled::notes(&record.modelled) {
            let _ = writeln!(page, "\n{note}.");
        }
        if !record.calibration.is_empty() {
            page += "\nThe machine, as Ferry measured it at boot:\n\n";
        }
        for line in calibration::to_text(&record.calibration).lines() {
            let _ = writeln!(page, "- {line}");
        }
        if let Some(warning) = of.warning() {
            let _ = writeln!(page, "\nMind that {warning}.");
        }
        for failure in &record.failures {
            let _ = writeln!(page, "\nFailed: {}", failure.lines().next().unwrap_or(""));
        }
    }
    page
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::{Samples, outcomes};
    use crate::bench::suites;

    #[test]
    fn the_page_has_a_row_per_case_and_says_what_failed() {
        let suite = suites::find("posted").unwrap();
        let mut record = Record::begin(3);
        let samples = Samples::from([
            ("posted posted_getppid".to_owned(), vec![10.0]),
            ("linux trap_getppid".to_owned(), vec![40.0]),
        ]);
        record.outcomes = outcomes(suite, &samples, false);
        record.failures = vec!["linux, repeat 2: it hung\nmore".to_owned()];
        let page = markdown(&[(suite.name, suite.about, record)]);
        let lines = page.lines().filter(|line| line.starts_with("| ")).count();
        assert_eq!(lines, suite.cases.len() + 1);
        assert!(
            page.contains("| getppid, one posted | ns | 10.0 | 40.0 | Linux | 0.250 |"),
            "{page}"
        );
        assert!(page.contains("Failed: linux, repeat 2: it hung\n") && !page.contains("more"));
    }

    #[test]
    fn a_file_of_a_suite_has_its_outcomes_and_failures_alone() {
        let mut record = Record::begin(3);
        for name in ["null", "posted"] {
            record.outcomes.extend(outcomes(suites::find(name).unwrap(), &Samples::new(), false));
        }
        record.failures = ["null, linux, repeat 1: a", "nulls: b", "posted: c", "null: d"]
            .map(str::to_owned)
            .to_vec();
        let null = of_suite(&record, "null");
        assert_eq!(null.suites(), ["null"]);
        assert_eq!(null.failures, ["null, linux, repeat 1: a", "null: d"]);
    }

    #[test]
    fn the_page_has_what_was_modelled_of_the_suite() {
        let mut record = Record::begin(3);
        record.outcomes = outcomes(suites::find("null").unwrap(), &Samples::new(), false);
        record.modelled = ["null", "posted"].map(modelled::tests::side_of).to_vec();
        let page = markdown(&[("null", "about", of_suite(&record, "null"))]);
        assert_eq!(page.matches("| remote cpu0 | ").count(), 1, "{page}");
        assert!(page.contains("Modelled (x), not timed."));
    }

    #[test]
    fn the_page_has_curves_as_tables() {
        let mut record = Record::begin(3);
        record.outcomes = outcomes(suites::find("null").unwrap(), &Samples::new(), false);
        record.outcomes.truncate(2);
        for (outcome, x) in record.outcomes.iter_mut().zip([1.0, 64.0]) {
            outcome.plot = Some("getppid by batch".to_owned());
            outcome.x_label = Some("calls".to_owned());
            outcome.x = Some(x);
            outcome.ferry = Some(2.0 * x);
            outcome.figure = "auto batch_{}".to_owned();
        }
        let page = markdown(&[("null", "about", record)]);
        let expected = "### getppid by batch\n\n| calls | Ferry auto, ns |\n|--:|--:|\n\
                        | 1 | 2.00 |\n| 64 | 128 |\n";
        assert!(page.contains(expected), "{page}");
    }
}
