//! `ferry bench record DIR`: keeps results in the source tree and makes `docs/results.md` of all that
//! are kept there.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::outcome::{HEADS, rows};
use super::record::Record;
use super::suites::SUITES;
use crate::run::source_root;

/// Keeps the results in `directory`: one file per suite.
pub fn run(directory: &Path) -> Result<()> {
    let record = Record::read(directory)?;
    let kept = source_root().join("bench/results");
    let mut names: Vec<&str> = record.outcomes.iter().map(|row| row.suite.as_str()).collect();
    names.dedup();
    if names.is_empty() {
        bail!("{} has no outcomes to keep", directory.display());
    }
    for name in names {
        let mut of_suite = record.clone();
        of_suite.outcomes.retain(|row| row.suite == name);
        let text = serde_json::to_string_pretty(&of_suite)? + "\n";
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

fn write(path: &PathBuf, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
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
        let _ = writeln!(page, "| {} | papers |", HEADS.join(" | "));
        let _ = writeln!(page, "|{}", "---|".repeat(HEADS.len() + 1));
        for (row, outcome) in rows(&record.outcomes).iter().zip(&record.outcomes) {
            let paper = outcome.paper.as_deref().unwrap_or("");
            let _ = writeln!(page, "| {} | {paper} |", row.join(" | "));
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
        assert!(page.contains("| getppid, one posted | ns | 10.0 | 40.0 | 0.250 |"), "{page}");
        assert!(page.contains("Failed: linux, repeat 2: it hung\n") && !page.contains("more"));
    }
}
