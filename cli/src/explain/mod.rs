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
    after_help = "PROGRAM runs three times on each call path, without input; what it prints is not \
        shown.\nIt has to end by itself, with status 0. Statuses are those of `ferry run`.\n\n\
        Example:\n  ferry explain -- busybox find /usr -name '*.so'"
)]
pub struct Arguments {
    /// Stop any run after this time, with exit status 124; ten times it with the model.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    timeout: Duration,
    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, last = true, hide = true)]
    program: Vec<OsString>,
}

/// Carries out `ferry explain`; returns the exit status.
pub fn run(arguments: &Arguments) -> Result<u8> {
    match measure::measure(&arguments.program, arguments.timeout)? {
        Measured::Failed(status) => Ok(status),
        Measured::Paths(paths) => {
            let advice = advice::advise(&paths);
            print!("{}", text::of(&arguments.program, &paths, &advice));
            Ok(0)
        }
    }
}
