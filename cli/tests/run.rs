//! `ferry run` as its caller sees it: streams, exit statuses, signals and the terminal, against a
//! stand-in for QEMU that speaks the console protocol (examples/fake_machine.rs).

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

/// What any one run may take; far more than it needs.
const DEADLINE: Duration = Duration::from_secs(60);

fn fake_machine() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/fake_machine")
}

/// `ferry run` with the stand-in, which behaves as `mode` says.
fn ferry(mode: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
    command
        .env("FERRY_QEMU", fake_machine())
        .env("FERRY_KERNEL", env!("CARGO_BIN_EXE_ferry"))
        .env("FERRY_ROOT", env!("CARGO_TARGET_TMPDIR"))
        .arg("run")
        .args(["--append", &format!("fake={mode}")])
        .args(options)
        .args(["--", "busybox", "sh"])
        .stdin(Stdio::null());
    command
}

fn run(mode: &str, options: &[&str]) -> Output {
    ferry(mode, options).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits for the end with a deadline, so that a hang fails one test.
fn status_of(mut child: Child) -> i32 {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().expect("an exit status, not a signal");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("the run does not end");
}

#[test]
fn the_exit_status_is_the_programs() {
    for (mode, expected) in
        [("status", 7), ("killed", 128 + 11), ("missing", 127), ("forbidden", 126), ("stays", 7)]
    {
        assert_eq!(run(mode, &[]).status.code(), Some(expected), "{mode}");
    }
}

#[test]
fn the_program_gets_what_the_command_line_says() {
    let output = run("arguments", &["--env", "A=b c", "--cwd", "/tmp"]);
    let lines: Vec<_> = text(&output.stdout).lines().map(str::to_string).collect();
    assert!(lines[1].ends_with("/busybox"), "{lines:?}");
    assert_eq!(lines[0], "terminals 0");
    assert_eq!(lines[2..5], ["/tmp", "busybox", "sh"]);
    assert!(lines.contains(&"A=b c".to_string()));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn large_input_comes_through_byte_for_byte() {
    let input: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = ferry("echo", &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stdout == input, "{} bytes came back", output.stdout.len());
    assert_eq!(text(&output.stderr), "3000000 bytes\n");
}

#[test]
fn output_streams_stay_apart_and_complete() {
    let output = run("flood", &[]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout.len(), 2048 * 4096);
    assert!(output.stdout.iter().all(|byte| *byte == b'o'));
    assert_eq!(output.stderr.len(), 2048 * 4096);
    assert!(output.stderr.iter().all(|byte| *byte == b'e'));
}

#[test]
fn a_slow_reader_loses_nothing() {
    let mut child =
        ferry("flood", &[]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Longer than the tool waits for the machine to switch itself off.
    std::thread::sleep(Duration::from_secs(3));
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 2048 * 4096);
    assert_eq!(status_of(child), 3);
}

#[test]
fn a_program_whose_reader_left_dies_of_sigpipe() {
    for mode in ["closed", "ignorant"] {
        let mut child = ferry(mode, &["--timeout", "30"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "y\n");
        // The ignorant kernel does not end its program either: then it is the timeout.
        let expected = if mode == "closed" { 128 + 13 } else { 124 };
        if mode == "closed" {
            assert_eq!(status_of(child), expected);
        } else {
            let begin = Instant::now();
            interrupt(&child, Signal::TERM);
            assert_eq!(status_of(child), 128 + 15);
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
    }
}

#[test]
fn a_timeout_ends_even_a_machine_that_hangs() {
    for mode in ["hang", "obey"] {
        let begin = Instant::now();
        let child = ferry(mode, &["--timeout", "0.3"]).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(status_of(child), 124, "{mode}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_signal_to_the_tool_reaches_the_program() {
    let mut child = ferry("obey", &[]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "running\n");
    interrupt(&child, Signal::INT);
    assert_eq!(status_of(child), 128 + 2);
}

#[test]
fn a_machine_dies_with_its_tool() {
    let mut child = ferry("hang", &[]).spawn().unwrap();
    let machine = wait_for(|| child_of(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(|| (!is_alive(machine)).then_some(()));
}

#[test]
fn a_kernel_panic_is_explained() {
    for mode in ["panic", "panic-hang"] {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("kernel.log");
        let output = run(mode, &["--log-file", log.to_str().unwrap()]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{told}");
        assert_eq!(text(&output.stdout), "before\n");
        for part in ["something broke", "kernel/src/boot.rs:12", "0x1234", log.to_str().unwrap()] {
            assert!(told.contains(part), "{part} is missing in: {told}");
        }
        assert!(std::fs::read_to_string(&log).unwrap().contains("some line"));
    }
}

#[test]
fn a_machine_that_stops_without_a_word_is_an_error_of_the_kernel() {
    for mode in ["silent", "nonsense"] {
        let output = run(mode, &[]);
        assert_eq!(output.status.code(), Some(70), "{mode}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("log is"));
    }
}

#[test]
fn what_is_missing_gives_69() {
    let mut no_qemu = ferry("status", &[]);
    no_qemu.env_remove("FERRY_QEMU").env("PATH", "/nonexistent");
    assert_eq!(no_qemu.output().unwrap().status.code(), Some(69));
    assert_eq!(run("status", &["--kernel", "/no/kernel"]).status.code(), Some(69));
}

#[test]
fn wrong_options_give_64() {
    for wrong in [["--cpus", "0"], ["--memory", "x"], ["--timeout", "-1"], ["--app-cores", "9"]] {
        assert_eq!(run("status", &wrong).status.code(), Some(64), "{wrong:?}");
    }
    assert_eq!(run("status", &["--app-cores", "5"]).status.code(), Some(64));
}

#[test]
fn the_kernels_messages_show_when_asked_for() {
    let shown = run("panic", &["--log", "info"]);
    assert!(text(&shown.stderr).contains("some line\n"));
    let hidden = run("panic", &[]);
    assert!(!text(&hidden.stderr).contains("some line"));
}

/// A terminal with `ferry run` on it.
struct Terminal {
    child: Child,
    master: File,
}

impl Terminal {
    fn run(mode: &str) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        resize(&master, 24, 80);
        // `setsid --ctty` gives the new session this terminal, as a login would.
        let mut command = Command::new("setsid");
        let inner = ferry(mode, &[]);
        command.args(["--ctty", "--wait"]).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap());
        }
        let open = || {
            let mut options = File::options();
            Stdio::from(options.read(true).write(true).open(Path::new(&name)).unwrap())
        };
        command.stdin(open()).stdout(open()).stderr(open());
        Terminal { child: command.spawn().unwrap(), master: File::from(master) }
    }

    /// Reads until the text comes.
    fn expect(&mut self, expected: &str) {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !text(&seen).ends_with(expected) {
            let count = self.master.read(&mut byte).unwrap_or(0);
            assert_eq!(count, 1, "the terminal ends with {:?}, not {expected:?}", text(&seen));
            seen.push(byte[0]);
        }
    }
}

fn resize(master: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).unwrap();
}

#[test]
fn control_characters_reach_the_program_and_the_terminal_is_restored() {
    let mut terminal = Terminal::run("typed");
    let before = format!("{:?}", tcgetattr(&terminal.master).unwrap().local_modes);
    terminal.expect("ready\r\n");
    let raw = format!("{:?}", tcgetattr(&terminal.master).unwrap().local_modes);
    assert_ne!(before, raw);
    terminal.master.write_all(b"a\x03\r\x04").unwrap();
    terminal.expect("[97, 3, 13, 4]\r\n");
    let master = terminal.master.try_clone().unwrap();
    assert_eq!(status_of(terminal.child), 0);
    let after = format!("{:?}", tcgetattr(&master).unwrap().local_modes);
    assert_eq!(before, after);
}

#[test]
fn changes_of_the_windows_size_are_passed_on() {
    let mut terminal = Terminal::run("window");
    terminal.expect("24x80\r\n");
    resize(&OwnedFd::from(terminal.master.try_clone().unwrap()), 50, 132);
    terminal.expect("50x132\r\n");
    assert_eq!(status_of(terminal.child), 0);
}

#[test]
fn the_escape_stops_ferry_itself() {
    let mut terminal = Terminal::run("typed");
    terminal.expect("ready\r\n");
    terminal.master.write_all(&[0x1d; 3]).unwrap();
    assert_eq!(status_of(terminal.child), 128 + 15);
}

fn interrupt(child: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

/// Waits until there is a value, with a deadline.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < deadline, "what is waited for does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that the tool started, once it has become the machine.
fn child_of(parent: u32) -> Option<u32> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let child = std::fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
    name.starts_with("fake_machine").then_some(child)
}

fn is_alive(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}
