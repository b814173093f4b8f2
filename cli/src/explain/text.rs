//! The half page.

use std::ffi::OsString;
use std::fmt::Write as _;

use super::advice::{Advice, CallCost};
use super::measure::PathFigures;

/// Longest line of reasons.
const WIDTH: usize = 96;

/// The text for a program.
pub fn of(program: &[OsString], paths: &[PathFigures], advice: &Advice) -> String {
    let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
    let mut text = format!("{}\n\n", words.join(" "));
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "{:<8}{:>10}{:>10}{:>9}{:>14}{:>14}{:>10}",
        "path", "program", "calls", "posted", "user instr.", "kernel instr.", "L1 misses"
    );
    for path in paths {
        let calls: u64 = path.calls.iter().map(|call| call.calls).sum();
        let posted = path.calls.iter().filter(|call| call.way == "posted");
        let posted: u64 = posted.map(|call| call.calls).sum();
        let share = format!("{:.0} %", posted as f64 * 100.0 / calls.max(1) as f64);
        let time = format!("{:.0} ms", path.program_ms);
        let _ = write!(text, "{:<8}{time:>10}{calls:>10}{share:>9}", path.path);
        let _ = match &path.modelled {
            None => writeln!(text, "{:>14}{:>14}{:>10}", "-", "-", "-"),
            Some(counts) => {
                let user = counts.user.saturating_sub(counts.waiting_user);
                let waiting = counts.waiting.saturating_sub(counts.waiting_user);
                let kernel = counts.kernel.saturating_sub(waiting);
                let misses = counts.l1i + counts.l1d;
                writeln!(text, "{:>14}{:>14}{:>10}", many(user), many(kernel), many(misses))
            }
        };
    }
    text += "(instructions and misses: the program's core, modelled; without waiting in loops)\n\n";
    let _ = write!(text, "{:<22}{:>8}", "calls that cost most", "calls");
    for path in paths {
        let _ = write!(text, "{:>12}", path.path);
    }
    text += "  ns each\n";
    for call in &advice.dominant {
        text += &line(call);
    }
    if advice
        .dominant
        .iter()
        .any(|call| call.cost.iter().flatten().any(|(_, posted)| *posted > 0.0))
    {
        text += "(+: posted calls among them, of which only the handling is seen)\n";
    }
    text.push('\n');
    let best = match advice.best {
        Some(index) => format!("Best: {}.", paths[index].path),
        None => "No path is clearly best.".to_owned(),
    };
    let reasons = [best.as_str()].into_iter().chain(advice.reasons.iter().map(String::as_str));
    text + &wrapped(&reasons.collect::<Vec<_>>().join(" "))
}

fn line(call: &CallCost) -> String {
    let waits = if call.may_wait { " (waits)" } else { "" };
    let mut text = format!("{:<22}{:>8}", format!("{}{waits}", call.name), call.calls);
    for cost in &call.cost {
        let cell = match cost {
            None => "-".to_owned(),
            Some((cost, posted)) => format!("{cost:.0}{}", if *posted > 0.0 { "+" } else { "" }),
        };
        let _ = write!(text, "{cell:>12}");
    }
    text.push('\n');
    text
}

/// A count, short.
fn many(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{} k", count / 1000),
        _ => format!("{} M", count / 1_000_000),
    }
}

/// Words in lines.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        if length > 0 && length + 1 + word.chars().count() > WIDTH {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += word.chars().count();
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::advice::advise;
    use crate::run::CallFigures;

    fn path(name: &str, way: &str, program_ms: f64) -> PathFigures {
        let call = CallFigures {
            name: "read".to_owned(),
            way: way.to_owned(),
            calls: 1000,
            handle_ns: 1234.0,
            ..CallFigures::default()
        };
        let modelled = model::Counts { user: 20_000_000, kernel: 5000, ..model::Counts::default() };
        PathFigures {
            path: name.to_owned(),
            program_ms,
            spread_ms: 0.0,
            calls: vec![call],
            doorbells: 0,
            modelled: Some(modelled),
        }
    }

    #[test]
    fn it_is_half_a_page_and_names_the_best_path() {
        let paths = [
            path("local", "local", 100.0),
            path("remote", "remote", 150.0),
            path("posted", "posted", 60.0),
        ];
        let text = of(&["a".into(), "b".into()], &paths, &advise(&paths));
        assert!(text.starts_with("a b\n"), "{text}");
        assert!(text.contains("Best: posted."), "{text}");
        assert!(text.contains("1234+") && text.contains("20 M"), "{text}");
        assert!(text.lines().count() <= 25 && text.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn lines_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(60));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(text.split_whitespace().count(), 60);
    }
}
