//! `ferry run` with the real kernel: what its caller relies on, case by case.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::boot::{Boot, CONFIGURATIONS, Configuration};
use super::faults;
use super::programs;
use super::races;
use super::report::{Case, Filter, Report};
use crate::process;

/// What one boot may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Time for which an idle guest is watched.
const IDLE: Duration = Duration::from_secs(5);
/// Share of one host core that an idle guest may use.
const IDLE_SHARE: f64 = 0.05;
/// Clock ticks per second in `/proc/PID/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// One check; an error says what is wrong.
pub type Check = fn(&Bench) -> Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("two-commands-of-the-readme", readme_command),
    ("exit-status", exit_status),
    ("killed-by-signal", killed_by_signal),
    ("not-found", not_found),
    ("not-runnable", not_runnable),
    ("timeout", timeout),
    ("streams-stay-apart", streams_stay_apart),
    ("large-input-and-output", large_input_and_output),
    ("unread-input", unread_input),
    ("closed-output", closed_output),
    ("dynamic-program", dynamic_program),
    ("script", script),
    ("added-file", added_file),
    ("environment-and-directory", environment_and_directory),
    ("prepared-root", prepared_root),
    ("corrupt-root", corrupt_root),
    ("corrupt-program", corrupt_program),
    ("many-cores", many_cores),
    ("interrupt-of-the-tool", interrupt_of_the_tool),
    ("terminal", terminal),
    ("idle", idle),
    ("counters", counters),
    ("interrupt-cores", interrupt_cores),
    ("trace", trace),
    ("trace-of-locks", trace_of_locks),
    ("top", top),
    ("trace-on-a-full-disk", trace_on_a_full_disk),
    ("panic-of-a-handler", faults::panic_of_a_handler),
    ("panic-of-the-kernel", faults::panic_of_the_kernel),
    ("machine-alone", faults::machine_alone),
];

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    report.progress("run: what callers of ferry run rely on");
    let mut cases = Vec::new();
    let checks = CHECKS.iter().chain(programs::CHECKS).chain(races::CHECKS);
    for (name, check) in checks.filter(|(name, _)| filter.wants("run", name)) {
        let failure = check(bench).err().map(|error| format!("{error:#}"));
        cases.push(Case::new(format!("run/{name}"), failure));
    }
    report.add("run", &cases);
    Ok(())
}

/// Boots with one core for each role.
fn boot(bench: &Bench, options: &[&str], program: &[&str], input: &[u8]) -> Result<Boot> {
    let boot = bench.ferry.boot("run", CONFIGURATIONS[3], options, program, input, DEADLINE)?;
    let contained = boot.contained_panics();
    ensure!(contained.is_empty(), "handlers panicked: {contained:?}");
    Ok(boot)
}

/// Boots a shell script; it has to end with this status.
fn shell(bench: &Bench, text: &str, input: &[u8], status: i32) -> Result<Boot> {
    let boot = boot(bench, &[], &["busybox", "sh", "-c", text], input)?;
    expect_status(&boot, status)?;
    Ok(boot)
}

fn expect_status(boot: &Boot, status: i32) -> Result<()> {
    let got = boot.finished.status;
    ensure!(got == status, "exit status {got}, not {status}\n{}", boot.describe_machine());
    Ok(())
}

fn expect_output(boot: &Boot, expected: &str) -> Result<()> {
    let got = &boot.finished.stdout;
    ensure!(got == expected, "the output is {got:?}, not {expected:?}");
    Ok(())
}

fn readme_command(bench: &Bench) -> Result<()> {
    let boot = shell(bench, "uname -sr; ls -l /; echo $((6*7))", b"", 0)?;
    let output = &boot.finished.stdout;
    ensure!(output.ends_with("\n42\n"), "{output}");
    ensure!(output.lines().any(|line| line.ends_with(" tmp")), "{output}");
    ensure!(boot.finished.stderr.is_empty(), "stderr: {}", boot.finished.stderr);
    Ok(())
}

fn exit_status(bench: &Bench) -> Result<()> {
    shell(bench, "exit 42", b"", 42).map(drop)
}

fn killed_by_signal(bench: &Bench) -> Result<()> {
    shell(bench, "kill -9 $$", b"", 128 + 9)?;
    shell(bench, "kill -SEGV $$", b"", 128 + 11).map(drop)
}

fn not_found(bench: &Bench) -> Result<()> {
    expect_status(&boot(bench, &[], &["no-such-program"], b"")?, 127)
}

fn not_runnable(bench: &Bench) -> Result<()> {
    expect_status(&boot(bench, &[], &["/etc/passwd"], b"")?, 126)
}

fn timeout(bench: &Bench) -> Result<()> {
    let begin = Instant::now();
    let mut command = bench.ferry.command(CONFIGURATIONS[3]);
    command.args(["--timeout", "2", "--", "busybox", "sleep", "1000"]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    ensure!(finished.status == 124, "{}", finished.describe());
    ensure!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
    Ok(())
}

fn streams_stay_apart(bench: &Bench) -> Result<()> {
    let boot = shell(bench, "echo out; echo err >&2; echo more", b"", 0)?;
    expect_output(&boot, "out\nmore\n")?;
    ensure!(boot.finished.stderr == "err\n", "stderr is {:?}", boot.finished.stderr);
    Ok(())
}

fn large_input_and_output(bench: &Bench) -> Result<()> {
    let line = "0123456789abcdefghijklmnopqrstuvwxyz\n";
    let input = line.repeat(100_000);
    let boot = boot(bench, &[], &["busybox", "cat"], input.as_bytes())?;
    expect_status(&boot, 0)?;
    let got = &boot.finished.stdout;
    ensure!(*got == input, "{} bytes came back, not {}", got.len(), input.len());
    Ok(())
}

fn unread_input(bench: &Bench) -> Result<()> {
    let boot = boot(bench, &[], &["busybox", "true"], &[b'x'; 1 << 20])?;
    expect_status(&boot, 0)
}

fn closed_output(bench: &Bench) -> Result<()> {
    let mut command = bench.ferry.command(CONFIGURATIONS[3]);
    command.args(["--timeout", "30", "--", "busybox", "yes"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut some = [0; 2];
    let mut stdout = child.stdout.take().context("stdout")?;
    std::io::Read::read_exact(&mut stdout, &mut some)?;
    drop(stdout);
    let (status, _) = process::wait(&mut child, DEADLINE)?;
    ensure!(status == 128 + 13, "exit status {status}, not that of SIGPIPE");
    Ok(())
}

fn dynamic_program(bench: &Bench) -> Result<()> {
    let boot = boot(bench, &[], &["/usr/bin/seq", "3"], b"")?;
    expect_status(&boot, 0)?;
    expect_output(&boot, "1\n2\n3\n")
}

fn script(bench: &Bench) -> Result<()> {
    let path = bench.work.join("script");
    fs::write(&path, "#!/bin/sh\necho \"$1 from $0\" | tr a-z A-Z\n")?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&path, permissions)?;
    let name = path.to_string_lossy().into_owned();
    let boot = boot(bench, &[], &[&name, "hello"], b"")?;
    expect_status(&boot, 0)?;
    expect_output(&boot, &format!("hello from {name}\n").to_uppercase())
}

fn added_file(bench: &Bench) -> Result<()> {
    let directory = bench.work.join("added");
    fs::create_dir_all(directory.join("inside"))?;
    fs::write(directory.join("inside/file"), "contents\n")?;
    let option = format!("{}:/data", directory.display());
    let boot = boot(bench, &["--file", &option], &["busybox", "cat", "/data/inside/file"], b"")?;
    expect_status(&boot, 0)?;
    expect_output(&boot, "contents\n")
}

fn environment_and_directory(bench: &Bench) -> Result<()> {
    let options = ["--env", "A=b c", "--cwd", "/usr/bin"];
    let boot = boot(bench, &options, &["busybox", "sh", "-c", "echo \"$A\"; pwd"], b"")?;
    expect_status(&boot, 0)?;
    expect_output(&boot, "b c\n/usr/bin\n")
}

fn prepared_root(bench: &Bench) -> Result<()> {
    let archive = bench.work.join("root.cpio");
    let mut command = Command::new(&bench.ferry.tool);
    command.arg("image").arg("--output").arg(&archive).args(["--", "busybox"]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    ensure!(finished.succeeded(), "{}", finished.describe());
    let name = archive.to_string_lossy().into_owned();
    let boot = boot(bench, &["--rootfs", &name], &["echo", "packed"], b"")?;
    expect_status(&boot, 0)?;
    expect_output(&boot, "packed\n")
}

/// A hostile archive ends in an error of the program's start, never in a panic.
fn corrupt_root(bench: &Bench) -> Result<()> {
    let archive = bench.work.join("corrupt.cpio");
    let mut bytes = vec![b'0'; 6];
    bytes.copy_from_slice(b"070701");
    bytes.extend_from_slice(&[b'f'; 2000]);
    fs::write(&archive, bytes)?;
    let name = archive.to_string_lossy().into_owned();
    let boot = boot(bench, &["--rootfs", &name], &["/bin/sh"], b"")?;
    let status = boot.finished.status;
    ensure!(matches!(status, 126 | 127), "exit status {status}\n{}", boot.describe_machine());
    Ok(())
}

fn corrupt_program(bench: &Bench) -> Result<()> {
    let path = bench.work.join("corrupt-program");
    let mut bytes = fs::read("/bin/busybox")?;
    bytes.truncate(100);
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let name = path.to_string_lossy().into_owned();
    expect_status(&boot(bench, &[], &[&name], b"")?, 126)
}

/// Every call of a run is in its trace, which is complete and says so.
fn trace(bench: &Bench) -> Result<()> {
    let path = bench.work.join("run.trace");
    let name = path.to_string_lossy().into_owned();
    let script = "i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); done; busybox true";
    let boot = boot(bench, &["--trace", &name], &["busybox", "sh", "-c", script], b"")?;
    expect_status(&boot, 0)?;
    let tool = |arguments: &[&str]| {
        let mut command = Command::new(&bench.ferry.tool);
        command.arg("trace").args(arguments).arg(&path);
        process::run(&mut command, b"", DEADLINE)
    };
    let checked = tool(&["check"])?;
    ensure!(checked.succeeded(), "{}", checked.describe());
    let summary = tool(&["summary"])?;
    ensure!(summary.succeeded(), "{}", summary.describe());
    let count = |call: &str| -> u64 {
        let line = summary.stdout.lines().find(|line| line.split_whitespace().next() == Some(call));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    // Each line of output is a call.
    ensure!(count("write") == 50 && count("execve") >= 1, "{}", summary.stdout);
    ensure!(count("thread") >= 1 && count("switch") >= 1, "{}", summary.stdout);
    Ok(())
}

/// A trace that finds no room ends, the program does not; what was written can be read, and the status tells.
fn trace_on_a_full_disk(bench: &Bench) -> Result<()> {
    let program = ["busybox", "true"];
    let boot = boot(bench, &["--trace", "/dev/full"], &program, b"")?;
    expect_status(&boot, 74)?;
    let errors = &boot.finished.stderr;
    ensure!(errors.contains("/dev/full is not complete"), "{errors}");
    Ok(())
}

/// Under a giant lock each step of a call has a record of the lock, no two of which overlap.
fn trace_of_locks(bench: &Bench) -> Result<()> {
    let path = bench.work.join("locks.trace");
    let name = path.to_string_lossy().into_owned();
    let script = "for i in 1 2 3 4; do busybox ls /proc >/dev/null & done; wait";
    let options = ["--locks", "giant-mcs", "--trace", &name];
    let boot = boot(bench, &options, &["busybox", "sh", "-c", script], b"")?;
    expect_status(&boot, 0)?;
    for action in ["check", "summary"] {
        let mut command = Command::new(&bench.ferry.tool);
        let told = process::run(command.args(["trace", action]).arg(&path), b"", DEADLINE)?;
        ensure!(told.succeeded(), "{}", told.describe());
        ensure!(action == "check" || told.stdout.contains("giant-mcs 0: held"), "{}", told.stdout);
    }
    Ok(())
}

/// Pages of `ferry top` show both cores and the calls of the program, whose output and status are its own.
fn top(bench: &Bench) -> Result<()> {
    let script = "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done; exit 3";
    let mut command = Command::new(&bench.ferry.tool);
    command.args(["top", "--interval", "0.2", "--kernel"]).arg(&bench.ferry.kernel);
    command.args(["--timeout", "60", "--", "busybox", "sh", "-c", script]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    ensure!(finished.status == 3, "{}", finished.describe());
    ensure!(finished.stdout.lines().count() == 200, "{}", finished.describe());
    let has = |start: &[&str]| {
        finished
            .stderr
            .lines()
            .any(|line| line.split_whitespace().take(start.len()).eq(start.iter().copied()))
    };
    ensure!(has(&["write", "local"]) && has(&["ferry", "top:"]), "{}", finished.describe());
    Ok(())
}

fn many_cores(bench: &Bench) -> Result<()> {
    let options = ["--cpus", "8", "--kernel-cores", "6-7"];
    let mut command = Command::new(&bench.ferry.tool);
    command.arg("run").arg("--kernel").arg(&bench.ferry.kernel).args(options);
    command.args([
        "--timeout",
        "60",
        "--",
        "busybox",
        "sh",
        "-c",
        "for i in 1 2 3; do echo $i & done; wait",
    ]);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    let mut lines: Vec<&str> = finished.stdout.lines().collect();
    lines.sort_unstable();
    ensure!(finished.succeeded() && lines == ["1", "2", "3"], "{}", finished.describe());
    Ok(())
}

fn interrupt_of_the_tool(bench: &Bench) -> Result<()> {
    let mut command = bench.ferry.command(CONFIGURATIONS[3]);
    command.args(["--timeout", "60", "--", "busybox", "sh", "-c"]);
    command.arg("trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 1; done");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdout = std::io::BufReader::new(child.stdout.take().context("stdout")?);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line)?;
    ensure!(line == "ready\n", "the program says {line:?}");
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.context("a process")?, rustix::process::Signal::INT)?;
    let (status, _) = process::wait(&mut child, DEADLINE)?;
    // The handler runs when the shell's child has ended, within the tool's grace or not.
    ensure!(matches!(status, 5 | 130 | 137), "exit status {status}");
    Ok(())
}

/// Types at a shell on a terminal: echo, line editing and Ctrl-C work.
fn terminal(bench: &Bench) -> Result<()> {
    let ferry = bench.ferry.command(CONFIGURATIONS[3]);
    let mut line: Vec<String> = vec![ferry.get_program().to_string_lossy().into_owned()];
    line.extend(ferry.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    line.push("--timeout 40 -- busybox sh".to_string());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut typed = child.stdin.take().context("stdin")?;
    let mut shown = child.stdout.take().context("stdout")?;
    let mut seen = String::new();
    let result = (|| {
        expect_shown(&mut shown, &mut seen, "# ")?;
        // A character too many, erased again; then a command that only Ctrl-C ends.
        typed.write_all(b"echo $((6*7x\x7f))\r")?;
        expect_shown(&mut shown, &mut seen, "42\r\n")?;
        typed.write_all(b"sleep 1000\r")?;
        expect_shown(&mut shown, &mut seen, "sleep 1000\r\n")?;
        std::thread::sleep(Duration::from_millis(500));
        typed.write_all(b"\x03")?;
        expect_shown(&mut shown, &mut seen, "# ")?;
        typed.write_all(b"stty size; exit 3\r")?;
        anyhow::Ok(())
    })();
    drop(typed);
    let rest = std::thread::spawn(move || std::io::read_to_string(shown));
    let (status, _) = process::wait(&mut child, DEADLINE)?;
    let _ = rest.join();
    result?;
    ensure!(status == 3, "exit status {status}; seen: {seen:?}");
    Ok(())
}

/// Reads what a terminal shows until the text comes.
fn expect_shown(shown: &mut impl std::io::Read, seen: &mut String, text: &str) -> Result<()> {
    let start = seen.len();
    let mut byte = [0];
    while !seen[start..].ends_with(text) {
        ensure!(shown.read(&mut byte)? == 1, "the terminal ends; seen: {seen:?}, not {text:?}");
        seen.push(char::from(byte[0]));
    }
    Ok(())
}

/// An idle guest leaves the host alone: what `sleep` costs beyond what `true` costs.
fn idle(bench: &Bench) -> Result<()> {
    let used_by = |program: &[&str]| -> Result<f64> {
        let before = children_ticks()?;
        expect_status(&boot(bench, &[], program, b"")?, 0)?;
        Ok((children_ticks()? - before) / TICKS_PER_SECOND)
    };
    let booting = used_by(&["busybox", "true"])?;
    let sleeping = used_by(&["busybox", "sleep", &IDLE.as_secs().to_string()])?;
    let share = (sleeping - booting) / IDLE.as_secs_f64();
    ensure!(share < IDLE_SHARE, "an idle guest uses {:.1} % of a core", share * 100.0);
    Ok(())
}

/// `--stats` and the files below `/proc` agree about what a program called, on the path in force.
fn counters(bench: &Bench) -> Result<()> {
    let script = "cat /proc/ferry/counters /proc/$$/ferry /proc/$$/task/$$/ferry; :";
    for configuration in CONFIGURATIONS {
        let program = ["busybox", "sh", "-c", script];
        let boot = bench.ferry.boot("run", configuration, &["--stats"], &program, b"", DEADLINE)?;
        expect_status(&boot, 0)?;
        let (output, table) = (&boot.finished.stdout, &boot.finished.stderr);
        let name = configuration.name();
        // With auto, what is called for the first time stays at home.
        let is_local = configuration.cpus == 1 || matches!(configuration.path, "local" | "auto");
        let (column, place) = if is_local { ("local", 3) } else { ("remote", 2) };
        let lines: Vec<Vec<&str>> =
            output.lines().map(|line| line.split_whitespace().collect()).collect();
        let seen = |wanted: &[&str]| -> Result<u64> {
            let found = lines.iter().find(|line| line.starts_with(wanted));
            let value = found.and_then(|line| line.get(wanted.len()));
            Ok(value.with_context(|| format!("{name}: no {wanted:?} in {output}"))?.parse()?)
        };
        let total = |wanted: &str| -> Result<u64> {
            let found = table.lines().find(|line| line.split_whitespace().next() == Some(wanted));
            let value = found.and_then(|line| line.split_whitespace().last());
            Ok(value.with_context(|| format!("{name}: no {wanted:?} in {table}"))?.parse()?)
        };
        let forks = lines.iter().find(|line| line.first() == Some(&"clone"));
        let once = ["clone", "0", "0", "1", "0", "0"];
        ensure!(forks.is_some_and(|line| line.starts_with(&once)), "{name}: {output}");
        let getppid = lines.iter().find(|line| line.first() == Some(&"getppid"));
        let getppid = getppid.with_context(|| format!("{name}: no getppid in {output}"))?;
        let count = getppid.get(place).context("a column")?;
        ensure!(*count != "0" && getppid.get(1) == Some(&"0"), "{name}: {getppid:?}");
        for (counter, least) in [("traps", 50), (column, 20), ("switches", 2)] {
            let (before, after) = (seen(&["core0", counter])?, total(counter)?);
            ensure!(after >= before && after >= least, "{name}: {counter} {before}, then {after}");
        }
        let may_post = configuration.path == "posted";
        ensure!(may_post || total("posted")? == 0, "{name}: nothing was posted\n{table}");
        ensure!(seen(&["switches"])? > 0 && seen(&["traps"])? >= 20, "{name}: {output}");
    }
    Ok(())
}

/// A core that is for interrupts takes those of the devices, runs no program and serves no calls.
fn interrupt_cores(bench: &Bench) -> Result<()> {
    let configuration = Configuration::new(3, "auto");
    // Reading gives the interrupt core time to park, so that the end of the input interrupts it.
    let script = "read line; nproc; cat /proc/ferry/counters";
    let program = ["busybox", "sh", "-c", script];
    let options = ["--interrupt-cores", "2"];
    let boot = bench.ferry.boot("run", configuration, &options, &program, b"a line\n", DEADLINE)?;
    expect_status(&boot, 0)?;
    let output = &boot.finished.stdout;
    ensure!(output.lines().next() == Some("2"), "two cores run programs: {output}");
    let seen = |counter: &str| -> Result<u64> {
        let found = output.lines().find_map(|line| line.strip_prefix(&format!("core2 {counter} ")));
        Ok(found.with_context(|| format!("no core2 {counter} in {output}"))?.parse()?)
    };
    for counter in ["traps", "local", "remote", "posted", "switches"] {
        ensure!(seen(counter)? == 0, "{counter} on the interrupt core: {output}");
    }
    ensure!(seen("interrupts")? > 0, "nothing interrupted the interrupt core: {output}");
    Ok(())
}

/// Processor time of all children that have ended, and of theirs, in clock ticks.
fn children_ticks() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit_once(')').context("/proc/self/stat")?.1;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    // Fields 16 and 17 of proc(5); the first field here is its third.
    let ticks =
        |index: usize| -> Result<f64> { Ok(fields.get(index).context("a field")?.parse()?) };
    Ok(ticks(13)? + ticks(14)?)
}
