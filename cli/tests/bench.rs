//! `ferry bench` when something is wrong: guests that hang or die, and what is missing. A script stands
//! in for QEMU; it knows the peer by its serial port.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A guest program of the peer that does all that is asked for.
const PEER_ENDS: &str = "echo 'case getppid ns 500'; echo end";
const STATUS_USAGE: i32 = 64;
const STATUS_UNAVAILABLE: i32 = 69;

/// A source tree whose peer is fetched already.
struct Bench {
    root: tempfile::TempDir,
}

impl Bench {
    /// A machine with Ferry in it runs the shell commands `ferry`, one with the peer runs `peer`.
    fn new(ferry: &str, peer: &str) -> Bench {
        let root = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for folder in ["bench", "user"] {
            symlink(source.join(folder), root.path().join(folder)).unwrap();
        }
        let boot = root.path().join("target/bench/peer/boot");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("vmlinuz-test"), "kernel").unwrap();
        let qemu = root.path().join("qemu");
        let script =
            format!("#!/bin/sh\ncase \"$*\" in\n*stdio*) {peer} ;;\n*) {ferry} ;;\nesac\n");
        fs::write(&qemu, script).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        Bench { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
        command
            .env("FERRY_ROOT", self.root.path())
            .env("FERRY_QEMU", self.path("qemu"))
            .env("FERRY_KERNEL", env!("CARGO_BIN_EXE_ferry"))
            .arg("bench")
            .args(options)
            .arg("--out")
            .arg(self.path("results"));
        command
    }

    /// Runs the suite `null` once, with a second for each run.
    fn null(&self) -> Output {
        self.command(&["null", "--repeat", "1", "--deadline", "1"]).output().unwrap()
    }

    fn results(&self) -> serde_json::Value {
        let text = fs::read_to_string(self.path("results/results.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn complaints(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_guest_that_hangs_is_reported_and_the_rest_goes_on() {
    let bench = Bench::new("exec sleep 60", PEER_ENDS);
    let output = bench.null();
    let complaints = complaints(&output);
    assert_eq!(output.status.code(), Some(1), "{complaints}");
    assert!(
        complaints.contains("null, local, repeat 1: ferry run --path local did not end within 1 s")
    );
    assert!(complaints.contains("null, remote, repeat 1"), "{complaints}");
    let results = bench.results();
    let getppid = &results["outcomes"][0];
    assert_eq!((&getppid["ferry"], &getppid["peer"]), (&serde_json::Value::Null, &500.0.into()));
    assert!(!results["failures"].as_array().unwrap().is_empty());
}

#[test]
fn a_guest_that_dies_is_quoted() {
    let bench = Bench::new("echo 'no such machine' >&2; exit 3", "echo 'Kernel panic'; exit 1");
    let output = bench.null();
    let complaints = complaints(&output);
    assert_eq!(output.status.code(), Some(1), "{complaints}");
    assert!(complaints.contains("null, linux, repeat 1: Linux in QEMU ended with exit status: 1"));
    assert!(complaints.contains("its last words: Kernel panic"), "{complaints}");
    assert!(complaints.contains("null, local, repeat 1: ferry run --path local ended with"));
}

#[test]
fn a_guest_program_that_stops_half_way_gives_no_figures() {
    let bench = Bench::new("exit 1", "echo 'case getppid ns 500'");
    let output = bench.null();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaints(&output).contains("did not come to its end"), "{}", complaints(&output));
    assert!(bench.results()["outcomes"][0]["peer"].is_null());
}

#[test]
fn what_is_wrong_with_the_command_line_is_said() {
    let bench = Bench::new("exit 1", "exit 1");
    for (options, words) in [
        (&["nul"][..], &["\"nul\"", "--list"][..]),
        (&[], &["name a suite"]),
        (&["null", "--peer", "windows"], &["windows", "linux", "none"]),
        (&["null", "--repeat", "0"], &["0"]),
        (&["null", "--deadline", "soon"], &["soon", "--deadline"]),
    ] {
        let output = bench.command(options).output().unwrap();
        let complaints = complaints(&output);
        assert_eq!(output.status.code(), Some(STATUS_USAGE), "{options:?}: {complaints}");
        assert!(words.iter().all(|word| complaints.contains(word)), "{options:?}: {complaints}");
    }
}

#[test]
fn without_qemu_or_kernel_nothing_begins() {
    let bench = Bench::new("exit 1", "exit 1");
    let mut without_qemu = bench.command(&["null"]);
    without_qemu.env_remove("FERRY_QEMU").env("PATH", bench.path("results"));
    let mut without_kernel = bench.command(&["null"]);
    without_kernel.env("FERRY_KERNEL", "/no/such/kernel");
    for (mut command, words) in
        [(without_qemu, "install the package qemu-system-x86"), (without_kernel, "./ferry build")]
    {
        let output = command.output().unwrap();
        let complaints = complaints(&output);
        assert_eq!(output.status.code(), Some(STATUS_UNAVAILABLE), "{complaints}");
        assert!(complaints.contains(words), "{complaints}");
    }
}

#[test]
fn results_that_cannot_be_kept_are_refused_at_once() {
    let bench = Bench::new("exit 1", "exit 1");
    fs::write(bench.path("results"), "a file").unwrap();
    let output = bench.null();
    assert_ne!(output.status.code(), Some(0));
    assert!(complaints(&output).contains("--out"), "{}", complaints(&output));
}
