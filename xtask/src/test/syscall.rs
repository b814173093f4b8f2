//! The system-call programs of tests/syscall: on this machine's Linux first, then on Ferry with one
//! and two cores and by both call paths.
//!
//! One boot runs many programs, one after the other, by a small shell script in the guest. When the
//! machine dies or hangs, the case that it did not survive fails, and the next boot goes on behind
//! that. What Linux skips is not counted; what only Ferry skips fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Bench;
use super::boot::{CONFIGURATIONS, Configuration, SCHEMES};
use super::report::{Case, Filter, Report};
use crate::process;

/// What building the programs may take.
const BUILD_DEADLINE: Duration = Duration::from_secs(300);
/// What all programs together may take on Linux.
const LINUX_DEADLINE: Duration = Duration::from_secs(600);
/// How long a machine may say nothing before it counts as hung: longer than any case.
const SILENCE: Duration = Duration::from_secs(75);
/// What all boots of one configuration may take; what is left then fails.
const CONFIGURATION_DEADLINE: Duration = Duration::from_secs(900);
/// What one case may take in the guest, in seconds.
const CASE_DEADLINE_S: &str = "60";
/// Exit status of run-linux.sh when it may not make namespaces.
const NEEDS_ROOT: i32 = 77;

/// What runs under every lock scheme unless all is asked for: programs of many threads, which take a few
/// seconds together.
const SAMPLE: &[&str] = &["musl/epoll", "musl/futex", "musl/pipe", "musl/thread"];

/// Runs the programs given as arguments, each with the cases that follow it in its word, and marks
/// where each begins and ends.
const GUEST_SCRIPT: &str = r##"cd /tmp
for item; do
    program=${item%% *}
    cases=${item#"$program"}
    echo "# $program"
    "/tests/$program" $cases </dev/null 2>&1
    echo "# ended $program with $?"
done"##;

/// What a case said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    Failed(String),
}

/// The cases of a program with their verdicts, in the order in which they ran.
#[derive(Clone, Debug, Default)]
struct Cases(Vec<(String, Verdict)>);

impl Cases {
    fn get(&self, name: &str) -> Option<&Verdict> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, verdict)| verdict)
    }
}

/// Verdicts by program and case.
#[derive(Debug, Default)]
struct Verdicts {
    programs: BTreeMap<String, Cases>,
    /// Programs that ran to their end.
    ended: BTreeSet<String>,
}

impl Verdicts {
    /// Reads what the harness printed. Linux's script marks no ends, and needs none.
    fn parse(output: &str) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let mut program = String::new();
        for line in output.lines().map(|line| line.trim_end_matches('\r')) {
            let mut record = |name: &str, verdict| {
                let cases = verdicts.programs.entry(program.clone()).or_default();
                cases.0.push((name.to_string(), verdict));
            };
            if let Some(rest) = line.strip_prefix("# ended ") {
                verdicts.ended.extend(rest.split(' ').next().map(str::to_string));
            } else if let Some(name) = line.strip_prefix("# ").filter(|name| is_program(name)) {
                program = name.to_string();
                verdicts.programs.entry(program.clone()).or_default();
            } else if let Some(name) = line.strip_prefix("ok ") {
                record(name, Verdict::Passed);
            } else if let Some(rest) = line.strip_prefix("not ok ") {
                let (name, why) = rest.split_once(": ").unwrap_or((rest, ""));
                record(name, Verdict::Failed(why.to_string()));
            } else if let Some(rest) = line.strip_prefix("skip ") {
                let (name, _) = rest.split_once(": ").unwrap_or((rest, ""));
                record(name, Verdict::Skipped);
            }
        }
        verdicts
    }
}

fn is_program(name: &str) -> bool {
    (name.starts_with("musl/") || name.starts_with("glibc/")) && !name.contains(' ')
}

/// Builds the programs into the bench's directory.
pub fn build(bench: &Bench) -> Result<()> {
    let mut command = Command::new("sh");
    command.arg(bench.root.join("tests/syscall/build.sh")).arg(bench.programs());
    let built = process::run(&mut command, b"", BUILD_DEADLINE)?;
    if !built.succeeded() {
        bail!("tests/syscall does not build:\n{}", built.describe());
    }
    Ok(())
}

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("syscall: building the programs");
    build(bench)?;
    let programs = programs(&bench.programs())?;
    let is_wanted =
        |place: &str, program: &String| filter.wants("syscall", &format!("{place}/{program}"));
    let is_wanted_in = |configuration: &Configuration, program: &String| {
        let place = configuration.name();
        let texts = filter.names.iter().filter_map(|name| name.strip_prefix("syscall/"));
        let is_named = texts.into_iter().any(|text| text.starts_with(&place));
        let is_in_sample = SAMPLE.contains(&program.as_str());
        is_wanted(&place, program)
            && (bench.is_all || is_named || is_in_sample || CONFIGURATIONS.contains(configuration))
    };
    let wanted = |configuration: Configuration| -> Vec<String> {
        programs.iter().filter(|program| is_wanted_in(&configuration, program)).cloned().collect()
    };
    let places: Vec<_> = CONFIGURATIONS.iter().chain(&SCHEMES).collect();
    let anywhere = |program: &&String| {
        is_wanted("linux", program) || places.iter().any(|place| is_wanted_in(place, program))
    };
    let somewhere: Vec<_> = programs.iter().filter(anywhere).cloned().collect();
    let is_all = somewhere.len() == programs.len();
    let expected = on_linux(bench, &somewhere, is_all, report)?;
    // Two machines with one core each fit the two cores that there are at least.
    let (ones, twos): (Vec<&Configuration>, Vec<_>) =
        places.into_iter().partition(|each| each.cpus == 1);
    let run = |configuration| on_ferry(bench, configuration, wanted(configuration), &expected);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = ones.iter().map(|each| scope.spawn(|| run(**each))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for (configuration, result) in ones.iter().zip(results) {
        let cases = result.map_err(|_| anyhow::anyhow!("a test thread panicked"))??;
        report_configuration(report, **configuration, &cases);
    }
    for configuration in twos {
        report_configuration(report, *configuration, &run(*configuration)?);
    }
    Ok(())
}

fn report_configuration(report: &mut Report, configuration: Configuration, cases: &[Case]) {
    if !cases.is_empty() {
        report.add(&format!("syscall/{}", configuration.name()), cases);
    }
}

/// Names of the built programs, such as `musl/io`; stress, races and fuzzer run elsewhere.
pub fn programs(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for library in ["musl", "glibc"] {
        let entries = std::fs::read_dir(directory.join(library))
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !matches!(name.as_str(), "stress" | "race" | "fuzz" | "differential")
                && !name.ends_with(".new")
            {
                names.push(format!("{library}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Runs programs on Linux, where they have to pass, and returns what each one's cases are.
fn on_linux(
    bench: &Bench,
    programs: &[String],
    is_all: bool,
    report: &mut Report,
) -> Result<Verdicts> {
    report.progress("syscall: on this machine's Linux");
    // All at once when all are wanted, else one after the other: the script knows no lists.
    let runs: Vec<Option<&String>> =
        if is_all { vec![None] } else { programs.iter().map(Some).collect() };
    let mut finished = Vec::new();
    for program in runs {
        let mut command = Command::new("sh");
        command.arg(bench.root.join("tests/syscall/run-linux.sh")).arg(bench.programs());
        command.args(program);
        finished.push(process::run(&mut command, b"", LINUX_DEADLINE)?);
    }
    if finished.iter().any(|run| run.status == NEEDS_ROOT) {
        report.note("syscall: not run on this machine's Linux first, because that needs root");
        return list(bench, programs);
    }
    let said: String = finished.iter().map(|run| run.stdout.as_str()).collect();
    let verdicts = Verdicts::parse(&said);
    let mut cases = Vec::new();
    for (program, results) in &verdicts.programs {
        for (case, verdict) in &results.0 {
            let name = format!("syscall/linux/{program}/{case}");
            match verdict {
                Verdict::Passed => cases.push(Case::passed(name)),
                Verdict::Failed(why) => cases.push(Case::failed(name, why.clone())),
                Verdict::Skipped => {}
            }
        }
    }
    // A run that fails while all its cases pass says why itself.
    if cases.iter().all(|case| case.failure.is_none()) {
        let broken = finished.iter().filter(|run| !run.succeeded());
        cases.extend(broken.map(|run| Case::failed("syscall/linux", run.describe())));
    }
    report.add("syscall/linux", &cases);
    Ok(verdicts)
}

/// The cases by name alone, for a machine whose Linux may not be used.
fn list(bench: &Bench, programs: &[String]) -> Result<Verdicts> {
    let mut verdicts = Verdicts::default();
    for program in programs {
        let mut command = Command::new(bench.programs().join(program));
        let finished = process::run(command.arg("--list"), b"", LINUX_DEADLINE)?;
        let cases = finished.stdout.lines().map(|name| (name.to_string(), Verdict::Passed));
        verdicts.programs.insert(program.clone(), Cases(cases.collect()));
    }
    Ok(verdicts)
}

/// A program and those of its cases that are still to run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    program: String,
    cases: Vec<String>,
}

impl Item {
    /// What the script in the guest gets: a program with all its cases needs no names.
    fn word(&self, is_whole: bool) -> String {
        match is_whole {
            true => self.program.clone(),
            false => format!("{} {}", self.program, self.cases.join(" ")),
        }
    }
}

/// Runs programs in one configuration, in as many boots as it takes.
fn on_ferry(
    bench: &Bench,
    configuration: Configuration,
    programs: Vec<String>,
    expected: &Verdicts,
) -> Result<Vec<Case>> {
    let begin = Instant::now();
    let known = |program: &str| expected.programs.get(program).cloned().unwrap_or_default();
    let mut left: Vec<Item> = programs
        .into_iter()
        .map(|program| {
            let cases = known(&program).0.into_iter().map(|(name, _)| name).collect();
            Item { program, cases }
        })
        .collect();
    let added = format!("{}:/tests", bench.programs().display());
    let deadline = format!("HARNESS_DEADLINE={CASE_DEADLINE_S}");
    // The guest is nobody else's: bombs and hogs may go off in it.
    let options = ["--file", added.as_str(), "--env", deadline.as_str(), "--env", "FERRY_GUEST=1"];
    let mut cases = Vec::new();
    let mut contained = BTreeSet::new();
    for boots in 0.. {
        let remaining = CONFIGURATION_DEADLINE.saturating_sub(begin.elapsed());
        if left.is_empty() || remaining.is_zero() {
            break;
        }
        let words: Vec<String> = left
            .iter()
            .map(|item| item.word(item.cases.len() == known(&item.program).0.len()))
            .collect();
        let mut program = vec!["busybox", "sh", "-c", GUEST_SCRIPT, "sh"];
        program.extend(words.iter().map(String::as_str));
        let boot = bench.ferry.boot_while_it_speaks(
            &format!("syscall-{boots}"),
            configuration,
            &options,
            &program,
            remaining,
            SILENCE,
        )?;
        contained.append(&mut boot.contained_panics());
        let verdicts = Verdicts::parse(&boot.finished.stdout);
        left =
            judge(configuration, left, &verdicts, expected, &boot.describe_machine(), &mut cases);
    }
    for Item { program, cases: names } in left {
        let prefix = format!("syscall/{}/{program}", configuration.name());
        let why = "not run: the time for this configuration is over";
        cases.extend(names.iter().map(|case| Case::failed(format!("{prefix}/{case}"), why)));
    }
    if !cases.is_empty() {
        let name = format!("syscall/{}/no-handler-panics", configuration.name());
        cases.push(Case::of_problems(name, contained));
    }
    Ok(cases)
}

/// Compares what one boot said with what was to run; returns what is left for the next boot: the
/// items behind the case that the machine did not survive. `death` tells how it ended.
fn judge(
    configuration: Configuration,
    items: Vec<Item>,
    verdicts: &Verdicts,
    expected: &Verdicts,
    death: &str,
    cases: &mut Vec<Case>,
) -> Vec<Item> {
    let none = Cases::default();
    let mut items = items.into_iter();
    while let Some(item) = items.next() {
        let prefix = format!("syscall/{}/{}", configuration.name(), item.program);
        let got = verdicts.programs.get(&item.program).unwrap_or(&none);
        let known = expected.programs.get(&item.program).unwrap_or(&none);
        let survived = verdicts.ended.contains(&item.program);
        if survived && item.cases.is_empty() && got.0.is_empty() {
            cases.push(Case::failed(prefix.clone(), "it has no cases"));
        }
        for (index, case) in item.cases.iter().enumerate() {
            let name = format!("{prefix}/{case}");
            let is_skipped_on_linux = known.get(case) == Some(&Verdict::Skipped);
            let failure = match got.get(case) {
                Some(Verdict::Passed) => None,
                Some(Verdict::Failed(why)) => Some(why.clone()),
                Some(Verdict::Skipped) if is_skipped_on_linux => continue,
                Some(Verdict::Skipped) => Some("skipped on Ferry but not on Linux".to_string()),
                None if survived && is_skipped_on_linux => continue,
                None if survived => Some("no verdict, though the program ended".to_string()),
                None => {
                    cases.push(Case::failed(name, death));
                    let rest = item.cases[index + 1..].to_vec();
                    let rest = Item { program: item.program, cases: rest };
                    let behind = (!rest.cases.is_empty()).then_some(rest);
                    return behind.into_iter().chain(items).collect();
                }
            };
            cases.push(Case::new(name, failure));
        }
        if !survived {
            // Every case is known, yet the machine ended before it said that the program did.
            cases.push(Case::failed(format!("{prefix}/ends"), death));
            return items.collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "# musl/io\nok read\nnot ok write: io.c:7: x, got 1\n# a remark\n\
        skip chroot: not root\nio: 1 passed, 1 failed, 1 skipped\n# ended musl/io with 1\n# musl/next\n";

    /// Judges a boot that was to run all cases of `known`; returns verdicts and what is left.
    fn judged(known: &str, got: &str) -> (Vec<(String, bool)>, Vec<Item>) {
        let mut cases = Vec::new();
        let (got, known) = (Verdicts::parse(got), Verdicts::parse(known));
        let items = known.programs.iter().map(|(program, cases)| Item {
            program: program.clone(),
            cases: cases.0.iter().map(|(name, _)| name.clone()).collect(),
        });
        let items = items.collect();
        let left = judge(CONFIGURATIONS[3], items, &got, &known, "panic", &mut cases);
        let short = |name: &str| name.trim_start_matches("syscall/2-remote/").to_string();
        let verdict = |case: Case| (short(&case.name), case.failure.is_none());
        (cases.into_iter().map(verdict).collect(), left)
    }

    #[test]
    fn verdicts_are_read() {
        let verdicts = Verdicts::parse(OUTPUT);
        let io = &verdicts.programs["musl/io"];
        assert_eq!(io.get("read"), Some(&Verdict::Passed));
        assert_eq!(io.get("write"), Some(&Verdict::Failed("io.c:7: x, got 1".to_string())));
        assert_eq!(io.get("chroot"), Some(&Verdict::Skipped));
        assert!(verdicts.ended.contains("musl/io"));
        assert!(!verdicts.ended.contains("musl/next"));
    }

    #[test]
    fn the_next_boot_goes_on_behind_the_case_that_killed_the_machine() {
        let known = "# musl/io\nok a\nok b\nok c\n# musl/next\nok d\n";
        let (cases, left) = judged(known, "# musl/io\nok a\n");
        assert_eq!(cases, [("musl/io/a".to_string(), true), ("musl/io/b".to_string(), false)]);
        let words: Vec<_> = left.iter().map(|item| item.word(false)).collect();
        assert_eq!(words, ["musl/io c", "musl/next d"]);
    }

    #[test]
    fn a_case_without_a_verdict_fails() {
        let (cases, left) =
            judged("# musl/io\nok a\nok b\n", "# musl/io\nok a\n# ended musl/io with 0\n");
        assert_eq!(cases, [("musl/io/a".to_string(), true), ("musl/io/b".to_string(), false)]);
        assert!(left.is_empty());
    }

    #[test]
    fn a_skip_counts_only_where_linux_does_not_skip() {
        let skipped = "# musl/io\nskip a: x\n# ended musl/io with 0\n";
        assert!(judged(skipped, skipped).0.is_empty());
        assert!(!judged("# musl/io\nok a\n", skipped).0[0].1);
    }
}
