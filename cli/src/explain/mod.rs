//! `ferry explain`: which of its calls cost a program most, what each call path makes of them, and which
//! path is best for it and why.
//!
//! The program runs on each path: twice for the time, with the stages of its calls, and once with the
//! model of caches and TLBs. What a machine takes without it is measured with `true` and taken away.
//! `measure` runs, `advice` judges and is a pure function of the figures, `text` says it.

mod advice;
mod measure;
mod text;

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;

use crate::run::parse_seconds;
use measure::Measured;

/// Say which calls cost a program most, and which call path suits it best.
#[derive(clap::Args)]
#[command(
    override_usage = "ferry explain [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "PROGRAM runs three times on each call path and with auto, without input; what it prints is not \
        shown.\nIt has to end by itself, with status 0. Statuses are those of `ferry run`.\n\n\
        Example:\n  ferry explain -- busybox find /usr -name '*.so'"
)]
pub struct Arguments {
    /// Stop any run after this time, with exit status 124; ten times it with the model.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    timeout: Duration,
    #[command(flatten)]
    machine: Machine,
    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, last = true, hide = true)]
    program: Vec<OsString>,
}

/// Options of `ferry run` that each run gets as they are.
#[derive(clap::Args, Default)]
pub struct Machine {
    /// Cores of the machine, but for the path local [default: 2].
    #[arg(long, value_name = "N")]
    cpus: Option<String>,
    /// The program's cores, but for the path local.
    #[arg(long, value_name = "LIST")]
    app_cores: Option<String>,
    /// Cores that serve its calls, but for the path local.
    #[arg(long, value_name = "LIST")]
    kernel_cores: Option<String>,
    /// Cores that look after devices, but for the path local.
    #[arg(long, value_name = "LIST")]
    interrupt_cores: Option<String>,
    /// Memory of the machine, in M or G.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// What is locked.
    #[arg(long, value_name = "fine|coarse|giant-ticket|giant-clh|giant-mcs")]
    locks: Option<String>,
    /// Set a variable, or pass this machine's value on.
    #[arg(long, value_name = "K[=V]")]
    env: Vec<String>,
    /// Working directory in the guest.
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Add a file or folder, and what it needs to run.
    #[arg(long, value_name = "HOST[:GUEST]")]
    file: Vec<String>,
    /// Use a prepared root, which then has PROGRAM and `true` too.
    #[arg(long, value_name = "DIR|FILE.cpio")]
    rootfs: Option<String>,
    /// What the guest's root is: what is packed, or all of this machine's.
    #[arg(long, value_name = "ram|host")]
    root: Option<String>,
    /// Show a directory of this machine in the guest.
    #[arg(long, value_name = "HOSTDIR:GUESTDIR[:ro]")]
    share: Vec<String>,
}

impl Machine {
    /// The words for `ferry run` with so many cores, unless others are wanted.
    fn words(&self, cpus: &str) -> Vec<String> {
        let is_alone = cpus == "1";
        let cpus = self.cpus.as_deref().filter(|_| !is_alone).unwrap_or(cpus);
        let layout = |name: &str, cores: &Option<String>| {
            let words = |cores: &String| vec![name.to_owned(), cores.clone()];
            cores.as_ref().filter(|_| !is_alone).map(words).unwrap_or_default()
        };
        let one = |name: &str, value: &Option<String>| {
            value.iter().flat_map(|value| [name.to_owned(), value.clone()]).collect::<Vec<_>>()
        };
        let many = |name: &str, values: &[String]| {
            values.iter().flat_map(|value| [name.to_owned(), value.clone()]).collect()
        };
        [
            vec!["--cpus".to_owned(), cpus.to_owned()],
            layout("--app-cores", &self.app_cores),
            layout("--kernel-cores", &self.kernel_cores),
            layout("--interrupt-cores", &self.interrupt_cores),
            one("--memory", &self.memory),
            one("--locks", &self.locks),
            many("--env", &self.env),
            one("--cwd", &self.cwd),
            many("--file", &self.file),
            one("--rootfs", &self.rootfs),
            one("--root", &self.root),
            many("--share", &self.share),
        ]
        .concat()
    }
}

/// Carries out `ferry explain`; returns the exit status.
pub fn run(arguments: &Arguments) -> Result<u8> {
    match measure::measure(&arguments.program, &arguments.machine, arguments.timeout)? {
        Measured::Failed(status) => Ok(status),
        Measured::Paths(paths) => {
            let advice = advice::advise(&paths);
            print!("{}", text::of(&arguments.program, &paths, &advice));
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_machine_are_passed_on() {
        let machine = Machine {
            cpus: Some("4".to_owned()),
            kernel_cores: Some("3".to_owned()),
            file: vec!["a".to_owned(), "b:/c".to_owned()],
            root: Some("host".to_owned()),
            ..Machine::default()
        };
        let files = ["--file", "a", "--file", "b:/c", "--root", "host"];
        let many = ["--cpus", "4", "--kernel-cores", "3"];
        assert_eq!(machine.words("2"), [&many[..], &files].concat());
        assert_eq!(machine.words("1"), [&["--cpus", "1"][..], &files].concat());
    }
}
