//! Counts cases, prints progress, and shows what failing cases said.

use std::collections::BTreeSet;
use std::time::Instant;

/// Longest output that is shown for one failing case, in lines.
const SHOWN_LINES: usize = 60;

/// The outcome of one case.
#[derive(Debug, Clone)]
pub struct Case {
    /// Full name: stage first, components separated by slashes.
    pub name: String,
    /// What went wrong; `None` when nothing did.
    pub failure: Option<String>,
}

impl Case {
    /// A case that passed.
    pub fn passed(name: impl Into<String>) -> Case {
        Case { name: name.into(), failure: None }
    }

    /// A case that failed, with what it said.
    pub fn failed(name: impl Into<String>, failure: impl Into<String>) -> Case {
        Case { name: name.into(), failure: Some(failure.into()) }
    }

    /// A case that fails when there are problems.
    pub fn of_problems(name: impl Into<String>, problems: BTreeSet<String>) -> Case {
        let text = problems.into_iter().collect::<Vec<_>>().join("\n");
        Case::new(name, (!text.is_empty()).then_some(text))
    }

    /// A case that failed when there is a failure.
    pub fn new(name: impl Into<String>, failure: Option<String>) -> Case {
        Case { name: name.into(), failure }
    }
}

/// Which cases are wanted: all, or those that begin with one of the given names.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// `STAGE` or `STAGE/TEXT`.
    pub names: Vec<String>,
}

impl Filter {
    /// Whether anything of a stage is wanted.
    pub fn wants_stage(&self, stage: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name.split('/').next() == Some(stage))
    }

    /// Whether a case or group of cases is wanted: its name, without the stage, contains the text
    /// behind the stage.
    pub fn wants(&self, stage: &str, name: &str) -> bool {
        self.names.is_empty()
            || self.names.iter().any(|wanted| match wanted.split_once('/') {
                Some((wanted_stage, text)) => wanted_stage == stage && name.contains(text),
                None => wanted == stage,
            })
    }

    /// The text behind a stage, when exactly that is asked for: narrows what a test tool runs.
    pub fn text_for(&self, stage: &str) -> Option<&str> {
        self.names.iter().find_map(|name| match name.split_once('/') {
            Some((wanted_stage, text)) if wanted_stage == stage => Some(text),
            _ => None,
        })
    }
}

/// A failure that is looked at again is rare; with more than this, something is broken for good.
const MOST_SECOND_TRIES: usize = 20;

/// The count so far.
pub struct Report {
    passed: usize,
    failed: Vec<String>,
    notes: Vec<String>,
    begin: Instant,
    /// Names of what passed, where the caller wants to know them.
    names: Option<BTreeSet<String>>,
}

impl Report {
    /// Nothing counted yet.
    pub fn new() -> Report {
        let (failed, notes) = (Vec::new(), Vec::new());
        Report { passed: 0, failed, notes, begin: Instant::now(), names: None }
    }

    /// The report of a second try: goes on with the time of the first, and keeps names.
    pub fn second(&self) -> Report {
        Report { begin: self.begin, names: Some(BTreeSet::new()), ..Report::new() }
    }

    /// Names of what passed at the second try.
    pub fn into_passed(self) -> BTreeSet<String> {
        self.names.unwrap_or_default()
    }

    /// Says what is being done, with the time since the start.
    pub fn progress(&self, text: &str) {
        let seconds = self.begin.elapsed().as_secs();
        println!("[{:2}:{:02}] {text}", seconds / 60, seconds % 60);
    }

    /// Says something that the reader should see at the end again, such as what was left out.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.progress(&text);
        self.notes.push(text);
    }

    /// Counts the cases of a group and prints a line for it, with what the failing ones said.
    pub fn add(&mut self, group: &str, cases: &[Case]) {
        for case in cases {
            match &case.failure {
                None => {
                    self.passed += 1;
                    if let Some(names) = &mut self.names {
                        names.insert(case.name.clone());
                    }
                }
                Some(failure) => {
                    println!("not ok {}", case.name);
                    for line in shortened(failure) {
                        println!("    {line}");
                    }
                    self.failed.push(case.name.clone());
                }
            }
        }
        let failed = cases.iter().filter(|case| case.failure.is_some()).count();
        let count = cases.len() - failed;
        let tail = if failed == 0 { String::new() } else { format!(", {failed} FAILED") };
        self.progress(&format!("{group}: {count} ok{tail}"));
    }

    /// Which cases deserve a second try: those that failed, unless they are many.
    pub fn worth_a_second_try(&self) -> &[String] {
        if self.failed.len() > MOST_SECOND_TRIES { &[] } else { &self.failed }
    }

    /// Takes over what a second try showed: a case that passed there counts as passed, and a note names
    /// it, because whatever made it fail once deserves a look. What did not run again stays failed.
    pub fn settle(&mut self, passed_again: &BTreeSet<String>) {
        let (passed, failed) = std::mem::take(&mut self.failed)
            .into_iter()
            .partition(|name| passed_again.contains(name));
        self.failed = failed;
        let passed: Vec<String> = passed;
        self.passed += passed.len();
        self.notes.extend(passed.iter().map(|name| format!("passed at the second try: {name}")));
    }

    /// Whether nothing was tested.
    pub fn is_empty(&self) -> bool {
        self.passed == 0 && self.failed.is_empty()
    }

    /// Prints the end; returns whether all passed.
    pub fn finish(&self) -> bool {
        if !self.failed.is_empty() {
            println!("\nfailed:");
            for name in &self.failed {
                println!("    {name}");
            }
        }
        for note in &self.notes {
            println!("note: {note}");
        }
        let seconds = self.begin.elapsed().as_secs();
        println!("took {} min {} s", seconds / 60, seconds % 60);
        println!("{} passed, {} failed", self.passed, self.failed.len());
        self.failed.is_empty()
    }
}

/// The first and the last lines, when there are many.
fn shortened(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= SHOWN_LINES {
        return lines.into_iter().map(str::to_string).collect();
    }
    let half = SHOWN_LINES / 2;
    let left_out = format!("… {} lines …", lines.len() - SHOWN_LINES);
    let (head, tail) = (&lines[..half], &lines[lines.len() - half..]);
    head.iter()
        .copied()
        .chain([left_out.as_str()])
        .chain(tail.iter().copied())
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(names: &[&str]) -> Filter {
        Filter { names: names.iter().map(|name| name.to_string()).collect() }
    }

    #[test]
    fn no_names_want_everything() {
        assert!(filter(&[]).wants_stage("host"));
        assert!(filter(&[]).wants("syscall", "2-remote/musl/io"));
    }

    #[test]
    fn names_narrow_stages_and_groups() {
        let narrow = filter(&["syscall/musl/io", "shell"]);
        assert!(!narrow.wants_stage("host"));
        assert!(narrow.wants("syscall", "2-remote/musl/io"));
        assert!(!narrow.wants("syscall", "2-remote/glibc/io"));
        assert!(narrow.wants("shell", "anything"));
        assert_eq!(narrow.text_for("syscall"), Some("musl/io"));
        assert_eq!(narrow.text_for("shell"), None);
    }

    #[test]
    fn a_second_try_settles_what_passed_then_and_nothing_else() {
        let mut report = Report::new();
        let failed = |name: &str| Case::failed(name, "why");
        report.add("stage", &[failed("stage/a"), failed("stage/b"), Case::passed("stage/c")]);
        assert_eq!(report.worth_a_second_try(), ["stage/a", "stage/b"]);
        let mut second = report.second();
        second.add("stage", &[Case::passed("stage/a"), failed("stage/b"), Case::passed("stage/d")]);
        report.settle(&second.into_passed());
        assert_eq!((report.passed, report.failed.as_slice()), (2, &["stage/b".to_string()][..]));
        assert_eq!(report.notes, ["passed at the second try: stage/a"]);
        assert!(!report.finish());
    }

    #[test]
    fn many_failures_get_no_second_try() {
        let mut report = Report::new();
        let name = |number: usize| format!("stage/{number}");
        let cases: Vec<_> = (0..=MOST_SECOND_TRIES).map(|n| Case::failed(name(n), "why")).collect();
        report.add("stage", &cases);
        assert!(report.worth_a_second_try().is_empty());
    }

    #[test]
    fn long_output_loses_its_middle() {
        let text: String = (0..200).map(|line| format!("{line}\n")).collect();
        let shown = shortened(&text);
        assert_eq!(shown.len(), SHOWN_LINES + 1);
        assert_eq!((shown[0].as_str(), shown[SHOWN_LINES].as_str()), ("0", "199"));
    }
}
