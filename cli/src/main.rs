//! The `ferry` command: run Linux programs on Ferry, and look at what Ferry offers them.
//!
//! Each subcommand is a module with an `Arguments` type and a `run` function that returns the exit
//! status. Errors end with a status from `status` and one line that says what to do.

#![forbid(unsafe_code)]

mod bench;
mod explain;
mod image;
mod machine;
mod model;
mod page;
mod run;
mod simulate;
mod status;
mod syscalls;
mod traces;
mod tune;

use clap::{Parser, Subcommand};

/// Run unmodified Linux programs on the Ferry kernel.
#[derive(Parser)]
#[command(
    name = "ferry",
    bin_name = "ferry",
    version,
    arg_required_else_help = true,
    after_help = "For developers: ferry build | test | check | docs (each with --help).\n\n\
        Example:\n  ferry run -- busybox sh -c 'uname -sr; ls -l /'"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Options>),
    Bench(bench::Arguments),
    Explain(explain::Arguments),
    Top(Box<run::top::Arguments>),
    Trace(traces::Arguments),
    Sim(simulate::Arguments),
    Tune(Box<tune::Arguments>),
    Syscalls(syscalls::Arguments),
    Image(image::command::Arguments),
    /// Starts QEMU so that it ends with this tool; not for users.
    #[command(name = machine::LAUNCH_COMMAND, hide = true)]
    Launch(machine::LaunchArguments),
}

fn main() {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        let code = if error.use_stderr() { status::USAGE } else { 0 };
        // A closed stderr is no reason to fail differently.
        drop(error.print());
        std::process::exit(i32::from(code));
    });
    let result = match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Top(arguments) => run::top::run(arguments),
        Command::Trace(arguments) => traces::run(arguments),
        Command::Sim(arguments) => simulate::run(arguments),
        Command::Tune(arguments) => tune::run(arguments),
        Command::Syscalls(arguments) => syscalls::run(arguments),
        Command::Image(arguments) => image::command::run(arguments),
        Command::Launch(arguments) => machine::launch(arguments),
    };
    let code = result.unwrap_or_else(|error| {
        eprintln!("ferry: {error:#}");
        status::of_error(&error)
    });
    // Not a return: a thread may be blocked in a read of standard input.
    std::process::exit(i32::from(code));
}
