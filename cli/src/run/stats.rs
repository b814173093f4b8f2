//! `ferry run --stats` and `--stages`: what each core did during the run, and where the time of calls
//! went, as small tables; and the same as figures for the tool itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use abi::console::{CORE_COUNTERS, CoreCounters, StageTotals, call_way};
use serde::{Deserialize, Serialize};

/// What `--figures` writes to a file, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The counters of all cores together.
    pub counters: BTreeMap<String, u64>,
    /// Kinds of calls.
    pub calls: Vec<CallFigures>,
}

/// One kind of call; times are means, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallFigures {
    /// Name of the call.
    pub name: String,
    /// How it was carried: `local`, `remote` or `posted`.
    pub way: String,
    /// How often.
    pub calls: u64,
    /// From the trap to the request's being sent.
    pub enter_ns: f64,
    /// Until another core took it.
    pub fly_in_ns: f64,
    /// Until it was carried out, waits included.
    pub handle_ns: f64,
    /// Until the caller's core saw the answer.
    pub fly_out_ns: f64,
}

/// The figures of a run.
pub fn figures(cores: &[CoreCounters], stages: &[StageTotals]) -> Figures {
    let total =
        |index: usize| cores.iter().fold(0u64, |sum, core| sum.wrapping_add(core.values[index]));
    let counters =
        CORE_COUNTERS.iter().enumerate().map(|(index, name)| ((*name).to_owned(), total(index)));
    let calls = stages.iter().map(|of| {
        let mean = |total: u64| total as f64 / of.calls.max(1) as f64;
        let (name, way) = name_and_way(of);
        CallFigures {
            name,
            way: way.to_owned(),
            calls: of.calls,
            enter_ns: mean(of.enter_ns),
            fly_in_ns: mean(of.fly_in_ns),
            handle_ns: mean(of.handle_ns),
            fly_out_ns: mean(of.fly_out_ns),
        }
    });
    Figures { counters: counters.collect(), calls: calls.collect() }
}

/// What a kind of call is called, and how it was carried.
fn name_and_way(of: &StageTotals) -> (String, &'static str) {
    let name = policy::route::route(of.number as usize).map(|row| row.name.to_owned());
    let way = call_way::NAMES.get(of.way as usize).copied().unwrap_or("?");
    (name.unwrap_or_else(|| of.number.to_string()), way)
}

/// The table: one line per counter, one column per core, and their total.
pub fn table(cores: &[CoreCounters]) -> String {
    let mut lines = vec![vec![String::new()]];
    lines[0].extend(cores.iter().map(|core| format!("core {}", core.core)));
    lines[0].push("total".to_string());
    for (index, name) in CORE_COUNTERS.iter().enumerate() {
        let values: Vec<u64> = cores.iter().map(|core| core.values[index]).collect();
        let total = values.iter().fold(0u64, |sum, value| sum.wrapping_add(*value));
        let mut line = vec![(*name).to_string()];
        line.extend(values.iter().chain([&total]).map(u64::to_string));
        lines.push(line);
    }
    in_columns(&lines, 1)
}

/// The table of stages: one line per kind of call, the most time first, means in nanoseconds.
pub fn stages(totals: &[StageTotals]) -> String {
    let heads = ["call", "way", "calls", "enter ns", "fly-in ns", "handle ns", "fly-out ns"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    let mut totals = totals.to_vec();
    let stages = |of: &StageTotals| [of.enter_ns, of.fly_in_ns, of.handle_ns, of.fly_out_ns];
    totals.sort_by_key(|of| std::cmp::Reverse(stages(of).iter().sum::<u64>()));
    for of in &totals {
        let (name, way) = name_and_way(of);
        let mut line = vec![name, way.to_owned()];
        line.push(of.calls.to_string());
        line.extend(stages(of).map(|total| (total / of.calls.max(1)).to_string()));
        lines.push(line);
    }
    in_columns(&lines, 2)
}

/// Cells in columns, the first `left` of them to the left.
fn in_columns(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines[0].len();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                _ if column < left => write!(text, "  {cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_cores_and_their_total() {
        let core = |core| CoreCounters {
            core,
            reserved: 0,
            values: std::array::from_fn(|index| (u64::from(core) + 1) * index as u64 * 100),
        };
        let text = table(&[core(0), core(1)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), CORE_COUNTERS.len() + 1);
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            ["core", "0", "core", "1", "total"]
        );
        assert_eq!(lines[2], "local          100     200    300");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }

    #[test]
    fn stages_are_means_and_the_dearest_kind_comes_first() {
        let read = StageTotals {
            number: 0,
            way: call_way::REMOTE as u32,
            calls: 10,
            enter_ns: 1000,
            fly_in_ns: 2000,
            handle_ns: 3000,
            fly_out_ns: 500,
        };
        let write = StageTotals { number: 1, calls: 1, handle_ns: 9000, ..read };
        let text = stages(&[read, write]);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..3], ["write", "remote", "1"]);
        assert_eq!(lines[2], ["read", "remote", "10", "100", "200", "300", "50"]);
        let figures = figures(&[], &[read]);
        assert_eq!((figures.calls[0].name.as_str(), figures.calls[0].fly_in_ns), ("read", 200.0));
    }
}
