//! `ferry trace` and `ferry sim`, from rows of text to results, and with input that is wrong.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STATUS_USAGE: i32 = 64;

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with rows of a log of two processors, and the trace made of it.
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let mut rows = String::from("# core application call contention entry acquired exit\n");
        for at in 0..3_000_u64 {
            let (core, entry) = (at % 2, 1_000 + at / 2 * 5_000 + at % 2 * 2_000);
            let row = format!("{core},{},C,1,{entry},{},{}\n", 2 + core, entry + 180, entry + 900);
            rows.push_str(&row);
        }
        fs::write(folder.path("log"), rows).unwrap();
        let imported = folder
            .ferry(&["trace", "import", "--thesis", "log", "--out", "a.trace", "--cores", "2"]);
        assert!(imported.status.success(), "{}", stderr(&imported));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn ferry(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
        command.current_dir(self.0.path()).args(arguments).output().unwrap()
    }

    /// What a command that has to succeed prints.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.ferry(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that has to fail with this status says.
    fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.ferry(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
        stderr(&output)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn shorten(path: &Path, bytes: usize) {
    let mut content = fs::read(path).unwrap();
    content.truncate(content.len() - bytes);
    fs::write(path, content).unwrap();
}

#[test]
fn a_trace_is_checked_summarised_exported_drawn_and_compared() {
    let folder = Folder::new();
    assert!(folder.prints(&["trace", "check", "a.trace"]).contains("6000 records, complete"));
    let summary = folder.prints(&["trace", "summary", "a.trace"]);
    assert!(
        summary.contains("3000 calls")
            && summary.contains("giant-ticket 0: held")
            && summary.contains("channel_primary_receive"),
        "{summary}"
    );
    folder.prints(&["trace", "export", "a.trace", "--thesis", "out"]);
    let rows = folder.read("out");
    assert_eq!(rows.lines().count(), 3_001);
    assert!(rows.contains("\n0,2,2,1,1000,1180,1900\n"), "{}", &rows[..200]);
    folder.prints(&["trace", "export", "a.trace", "--csv", "out.csv"]);
    assert_eq!(folder.read("out.csv").lines().count(), 6_001);
    folder.prints(&["trace", "export", "a.trace", "--perfetto", "out.pftrace"]);
    assert!(fs::metadata(folder.path("out.pftrace")).unwrap().len() > 100_000);
    folder.prints(&["trace", "plot", "a.trace", "--html", "out.html"]);
    let page = folder.read("out.html");
    assert!(page.contains("core 1") && page.contains("</html>") && !page.contains("<script"));
    assert!(folder.prints(&["trace", "diff", "a.trace", "a.trace"]).contains("1.000"));
}

#[test]
fn a_trace_that_is_cut_off_is_used_as_far_as_it_goes() {
    let folder = Folder::new();
    shorten(&folder.path("a.trace"), 24 * 100);
    let output = folder.ferry(&["trace", "summary", "a.trace"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cut off at byte"), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains(" calls"));
    assert_eq!(folder.ferry(&["trace", "check", "a.trace"]).status.code(), Some(1));
}

#[test]
fn foreign_files_and_wrong_rows_are_told_with_what_to_do() {
    let folder = Folder::new();
    assert!(
        folder.fails(STATUS_USAGE, &["trace", "summary", "log"]).contains("ferry trace import")
    );
    assert!(folder.fails(STATUS_USAGE, &["trace", "check", "none"]).contains("none"));
    let rows = folder.read("log") + "0,1,C,0,9\n";
    fs::write(folder.path("bad"), rows).unwrap();
    let arguments = ["trace", "import", "--thesis", "bad", "--out", "b.trace"];
    let message = folder.fails(1, &arguments);
    assert!(message.contains("line 3002") && message.contains("3000 rows"), "{message}");
    folder.prints(&["trace", "check", "b.trace"]);
}

#[test]
fn a_trace_is_simulated_on_other_cores_and_locks() {
    let folder = Folder::new();
    let text = "trace = \"a.trace\"\ncores = 2\npath = \"local\"\nkernel_cores = [0]\n\
        application_cores = [0, 1]\n";
    fs::write(folder.path("a.toml"), text).unwrap();
    // 1,500 rows of each core, 5,000 ticks apart at 399 MHz, without the 180 of waiting for the lock.
    let run = folder.prints(&["sim", "run", "a.toml"]);
    assert!(run.contains("3000 calls in 0.0181"), "{run}");
    assert_eq!(run, folder.prints(&["sim", "run", "a.toml"]));
    let sweep = folder.prints(&[
        "sim",
        "sweep",
        "a.toml",
        "--locks",
        "fine,giant-clh",
        "--lock-latency",
        "0..1000:500",
    ]);
    assert_eq!(sweep.lines().filter(|line| line.contains("giant-clh")).count(), 3, "{sweep}");
    let costs = folder.prints(&["sim", "calibrate", "a.trace", "a.trace"]);
    assert!(costs.contains("data_transfer = 0.0"), "{costs}");
    assert!(sweep.contains("calls/s"));
    folder.prints(&["sim", "sweep", "a.toml", "--cores", "2,4", "--html", "sweep.html"]);
    let page = folder.read("sweep.html");
    assert!(page.contains("<polyline") && !page.contains("<script") && !page.contains("NaN"));
    folder.prints(&["sim", "run", "a.toml", "--html", "run.html"]);
    assert!(folder.read("run.html").contains("core 1"));
    let explained = folder.prints(&["sim", "explain", "a.toml"]);
    assert!(explained.contains("applications themselves are the bound"), "{explained}");
}

#[test]
fn the_published_configuration_is_simulated() {
    let folder = Folder::new();
    let text = r#"{"simulatedCores": 4, "logFile": "log", "defaultLatency": 179,
        "modeSwitchCost": 39, "isDefault": true, "isCoarseGrained": false, "actualCores": 2}"#;
    fs::write(folder.path("a.json"), text).unwrap();
    assert!(folder.prints(&["sim", "run", "a.json"]).contains("6000 calls"));
    let sweep = folder.prints(&["sim", "sweep", "a.json", "--cores", "1,8", "--locks", "coarse"]);
    assert!(sweep.lines().count() >= 3 && sweep.contains("coarse"), "{sweep}");
}

#[test]
fn configurations_that_are_wrong_are_refused_with_the_key() {
    let folder = Folder::new();
    for (text, what) in [
        ("trace = \"a.trace\"\ncores = 0\n", "cores is 0"),
        ("trace = \"a.trace\"\ncores = 2\nlock = \"fine\"\n", "lock"),
        ("trace = \"none\"\ncores = 2\n", "none"),
        ("trace = \"log\"\ncores = 2\n", "not a trace"),
        ("{\"simulatedCores\": 99}", "missing field"),
    ] {
        fs::write(folder.path("a.toml"), text).unwrap();
        let message = folder.fails(STATUS_USAGE, &["sim", "run", "a.toml"]);
        assert!(message.contains(what), "{message}");
    }
}

/// A stand-in for Slurm: two nodes that share the folder and take the tasks of the array in turn.
#[test]
fn a_sweep_by_tasks_of_an_array_yields_the_table_of_one_machine() {
    let folder = Folder::new();
    fs::write(folder.path("a.toml"), "trace = \"a.trace\"\ncores = 2\n").unwrap();
    let sweep = ["sim", "sweep", "a.toml", "--cores", "1,2", "--locks", "fine,giant-clh"];
    let with = |more: &[&str]| folder.ferry(&[&sweep[..], more].concat());
    assert!(with(&["--slurm", "job.sh"]).status.success());
    assert!(folder.read("job.sh").contains("#SBATCH --array=0-3\n"));
    let incomplete = with(&["--collect", "job.sh"]);
    assert_eq!(incomplete.status.code(), Some(1));
    assert!(stderr(&incomplete).contains("4 of 4 points have no result"));
    std::thread::scope(|nodes| {
        for node in 0..2 {
            let script = folder.path("job.sh");
            nodes.spawn(move || {
                for task in [node, node + 2] {
                    let mut command = Command::new("sh");
                    command.arg(&script).env("SLURM_ARRAY_TASK_ID", task.to_string());
                    assert!(command.current_dir("/").status().unwrap().success());
                }
            });
        }
    });
    let collected = with(&["--collect", "job.sh"]);
    assert!(collected.status.success(), "{}", stderr(&collected));
    assert_eq!(collected.stdout, with(&[]).stdout);
    let beyond = with(&["--point", "4", "--of", "job.sh"]);
    assert_eq!(beyond.status.code(), Some(STATUS_USAGE));
}

#[test]
fn recording_refuses_what_it_cannot_record() {
    let folder = Folder::new();
    let wrong = ["trace", "record", "--events", "calls,nothing", "--", "busybox"];
    assert!(folder.fails(STATUS_USAGE, &wrong).contains("none of calls, locks"));
    let twice = ["trace", "record", "--trace", "x", "--", "busybox", "true"];
    assert!(folder.fails(STATUS_USAGE, &twice).contains("--out"));
}
