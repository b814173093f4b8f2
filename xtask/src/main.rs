//! `cargo xtask`: build, test, check and document Ferry; for developers.
//!
//! Every command works from the root of the source tree, whatever the caller's directory is, and
//! ends with exit status 0 when all went well and 1 when something failed. Users of Ferry never need
//! this tool; the launcher `./ferry` calls it for `build`, `test`, `check` and `docs`.

#![forbid(unsafe_code)]

mod check;
mod docs;
mod kernel;
mod process;
mod test;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build, test, check and document Ferry.
#[derive(Parser)]
#[command(name = "ferry", bin_name = "ferry", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the kernel for x86-64 and print where it lies.
    #[command(
        visible_alias = "build-kernel",
        after_help = "Example:\n  ferry build --profile checked"
    )]
    Build {
        /// `release` as users run it, `checked` with lock-order and overflow checks.
        #[arg(long, default_value = "release")]
        profile: String,
        /// Only say what goes wrong.
        #[arg(long, short)]
        quiet: bool,
    },
    Test(test::Arguments),
    Check(check::Arguments),
    Docs(docs::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ferry: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let root = tree::root()?;
    match arguments.command {
        Command::Build { profile, quiet } => {
            let path = kernel::build(&root, &profile, quiet)?;
            println!("{}", path.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(check::Arguments {}) => Ok(success(check::run(&root)?)),
        Command::Docs(docs::Arguments {}) => docs::run(&root).map(|()| ExitCode::SUCCESS),
        Command::Test(arguments) => Ok(success(test::run(&root, &arguments)?)),
    }
}

fn success(all_well: bool) -> ExitCode {
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
