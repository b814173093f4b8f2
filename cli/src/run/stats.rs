//! `ferry run --stats`: what each core did during the run, as a small table.

use std::fmt::Write as _;

use abi::console::{CORE_COUNTERS, CoreCounters};

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
    let columns = lines[0].len();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
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
}
