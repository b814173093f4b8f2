//! `ferry syscalls`: which system calls there are, how they travel and how well they are supported,
//! straight from the route table that the kernel dispatches by.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;
use policy::route::{CallPath, Route, Support};
use policy::table::ROUTES;

/// List the system calls, their paths and how well each is supported.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry syscalls open --support partial")]
pub struct Arguments {
    /// Only calls whose name contains this text.
    #[arg(value_name = "TEXT", default_value = "", hide_default_value = true)]
    text: String,
    /// Only calls with this level of support.
    #[arg(long, value_enum)]
    support: Option<Level>,
    /// Write the compatibility page (Markdown) instead of a table.
    #[arg(long)]
    markdown: bool,
}

/// A level of support, as an option.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// As in the Linux manual.
    Full,
    /// With a gap.
    Partial,
    /// Answers ENOSYS.
    None,
}

/// Carries out `ferry syscalls`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let rows: Vec<&Route> = ROUTES
        .iter()
        .filter(|row| row.name.contains(&arguments.text))
        .filter(|row| arguments.support.is_none_or(|wanted| wanted == level(row.support)))
        .collect();
    let text = if arguments.markdown { markdown(&rows) } else { table(&rows) };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}

fn level(support: Support) -> Level {
    match support {
        Support::Full => Level::Full,
        Support::Partial => Level::Partial,
        Support::None => Level::None,
    }
}

fn support_word(row: &Route) -> &'static str {
    match row.support {
        Support::Full => "full",
        Support::Partial => "partial",
        Support::None => "none",
    }
}

/// Paths by which the call may travel.
fn paths_word(row: &Route) -> &'static str {
    if row.paths.permits(CallPath::Remote) { "any" } else { "local" }
}

fn class_word(row: &Route) -> String {
    format!("{:?}", row.class).to_lowercase()
}

fn table(rows: &[&Route]) -> String {
    let mut text = format!(
        "{:>6}  {:<24} {:<8} {:<6} {:<8} {}\n",
        "number", "name", "class", "paths", "support", "gap"
    );
    for row in rows {
        let line = format!(
            "{:>6}  {:<24} {:<8} {:<6} {:<8} {}",
            row.number,
            row.name,
            class_word(row),
            paths_word(row),
            support_word(row),
            row.gap
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn markdown(rows: &[&Route]) -> String {
    let count = |support| rows.iter().filter(|row| row.support == support).count();
    let mut text = String::from("# System calls\n\n");
    text.push_str("Made from the route table (`policy/src/table.rs`) by `./ferry docs`; ");
    text.push_str("not to be edited.\n\n");
    text.push_str("*Paths*: `any` calls may run on a kernel core; `local` ones stay on the core ");
    text.push_str(
        "of the program. *Support*: `full` is as in the Linux manual; `partial` has the ",
    );
    text.push_str("gap that the row names; `none` answers `ENOSYS`.\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} calls: {} full, {} partial, {} none.\n",
        rows.len(),
        count(Support::Full),
        count(Support::Partial),
        count(Support::None)
    );
    text.push_str("| number | name | class | paths | support | gap |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            row.number,
            row.name,
            class_word(row),
            paths_word(row),
            support_word(row),
            row.gap.replace('|', "\\|")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_line() {
        let rows: Vec<&Route> = ROUTES.iter().collect();
        assert_eq!(table(&rows).lines().count(), ROUTES.len() + 1);
        let page = markdown(&rows);
        assert_eq!(page.lines().filter(|line| line.starts_with("| ")).count(), ROUTES.len() + 1);
    }
}
