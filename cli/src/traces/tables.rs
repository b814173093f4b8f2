//! Summaries and differences as tables of text.

use std::fmt::Write as _;

use trace::diff::{Row, Subject};
use trace::summary::{Calls, STAGES, Summary};
use trace::{Histogram, Names};

use crate::bench::table::Table;

/// The summary of a trace.
pub fn summary(summary: &Summary, ticks_per_second: u64, names: Names) -> String {
    let ns = |ticks: f64| ticks * 1e9 / ticks_per_second.max(1) as f64;
    let mut text = format!(
        "{} records, {} calls, {:.6} s\n",
        summary.records,
        summary.all.total.count(),
        ns(summary.duration() as f64) / 1e9
    );
    // Shares are of the time of all cores that the trace knows.
    let cores = summary.cores.len().max(1) as f64;
    let whole = summary.duration() as f64 * cores;
    let row = |name: String, histogram: &Histogram| distribution(name, histogram, whole, &ns);
    let mut section = |title: &str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let heads = [title, "count", "mean ns", "p50", "p99", "p99.9", "worst", "share %"];
            let table = Table { heads: heads.map(str::to_owned).to_vec(), rows };
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{}", table.to_text());
        }
    };
    let mut calls: Vec<_> = summary.by_call.iter().collect();
    calls.sort_by_key(|(_, calls)| std::cmp::Reverse(calls.total.sum()));
    let rows = calls.iter().map(|(number, calls)| row(names(**number), &calls.total));
    section("call", rows.collect());
    let paths = summary.by_path.iter();
    section("path", paths.map(|(path, calls)| row(path.name().into(), &calls.total)).collect());
    let of_cores = summary.by_core.iter();
    section("core", of_cores.map(|(core, calls)| row(core.to_string(), &calls.total)).collect());
    let locks = summary.by_lock.iter().flat_map(|((scheme, lock), locks)| {
        let name = |what: &str| format!("{} {lock}: {what}", scheme.name());
        [
            row(name("wait"), &locks.waited),
            row(name("held"), &locks.held),
            row(name("release"), &locks.release),
        ]
    });
    section("lock", locks.collect());
    let by_call = summary.locks_by_call.iter().flat_map(|(number, locks)| {
        let name = |what: &str| format!("{}: {what}", names(*number));
        [row(name("wait"), &locks.waited), row(name("held"), &locks.held)]
    });
    section("lock, by call", by_call.collect());
    if summary.wake_ups.count() > 0 {
        section("wake-up", vec![row("ready to running".into(), &summary.wake_ups)]);
        text += &wake_ups(&summary.wake_ups, ticks_per_second);
    }
    if !summary.events.is_empty() {
        let rows =
            summary.events.iter().map(|(kind, count)| vec![kind.name().into(), count.to_string()]);
        let heads = vec!["event".into(), "count".into()];
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}", Table { heads, rows: rows.collect() }.to_text());
    }
    text += &stages(&summary.all, &ns);
    text += &core_shares(summary);
    text += &contention(summary);
    text
}

fn distribution(
    name: String,
    histogram: &Histogram,
    whole: f64,
    ns: &dyn Fn(f64) -> f64,
) -> Vec<String> {
    let at = |share| format!("{:.0}", ns(histogram.percentile(share) as f64));
    vec![
        name,
        histogram.count().to_string(),
        format!("{:.0}", ns(histogram.mean())),
        at(0.5),
        at(0.99),
        at(0.999),
        format!("{:.0}", ns(histogram.worst() as f64)),
        format!("{:.2}", histogram.sum() as f64 * 100.0 / whole.max(1.0)),
    ]
}

fn wake_ups(histogram: &Histogram, ticks_per_second: u64) -> String {
    let bounds_us = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000];
    let ticks = |us: u64| (us as f64 * ticks_per_second as f64 / 1e6) as u64;
    let counts = histogram.ranges(&bounds_us.map(ticks));
    let mut rows = Vec::new();
    for (at, count) in counts.iter().enumerate() {
        let range = match bounds_us.get(at) {
            Some(bound) => format!("below {bound}"),
            None => format!("from {}", bounds_us[at - 1]),
        };
        rows.push(vec![range, count.to_string()]);
    }
    format!("\n{}", Table { heads: vec!["wake-up, us".into(), "count".into()], rows }.to_text())
}

fn stages(calls: &Calls, ns: &dyn Fn(f64) -> f64) -> String {
    let sum: u128 = calls.stages.iter().sum();
    let rows = STAGES.iter().zip(calls.stages).map(|(stage, ticks)| {
        let mean = ns(ticks as f64) / calls.total.count().max(1) as f64;
        let share = ticks as f64 * 100.0 / (sum as f64).max(1.0);
        vec![(*stage).to_owned(), format!("{mean:.1}"), format!("{share:.2}")]
    });
    let heads = ["stage", "mean ns", "share %"].map(str::to_owned).to_vec();
    format!("\n{}", Table { heads, rows: rows.collect() }.to_text())
}

fn core_shares(summary: &Summary) -> String {
    let whole = summary.duration().max(1) as f64;
    let rows = summary.cores.iter().map(|(number, core)| {
        let share = |ticks: u128| ticks as f64 * 100.0 / whole;
        let shares = [share(core.kernel), share(core.spinning), share(core.parked)];
        let user = (100.0 - shares.iter().sum::<f64>()).max(0.0);
        let mut row = vec![number.to_string(), format!("{user:.1}")];
        row.extend(shares.map(|share| format!("{share:.1}")));
        row.extend([core.calls.to_string(), core.handled.to_string()]);
        row
    });
    let heads = ["core", "user %", "kernel %", "spinning %", "parked %", "calls", "handled"];
    let heads = heads.map(str::to_owned).to_vec();
    format!("\n{}", Table { heads, rows: rows.collect() }.to_text())
}

fn contention(summary: &Summary) -> String {
    let all = summary.all.total.count().max(1) as f64;
    let rows = summary.contention.iter().map(|(others, count)| {
        vec![others.to_string(), count.to_string(), format!("{:.2}", *count as f64 * 100.0 / all)]
    });
    let heads = ["others in kernel", "calls", "share %"].map(str::to_owned).to_vec();
    format!("\n{}", Table { heads, rows: rows.collect() }.to_text())
}

/// The difference between two traces.
pub fn diff(rows: &[Row], names: Names) -> String {
    let heads = ["", "count", "", "mean ns", "", "ratio", "p50 ns", "", "p99 ns", ""];
    let rows = rows.iter().map(|row| {
        let name = match row.subject {
            Subject::All => "all calls".to_owned(),
            Subject::Path(path) => format!("path {}", path.name()),
            Subject::Call(number) => names(number),
        };
        let pair = |values: [f64; 2]| values.map(|value| format!("{value:.0}"));
        let mut cells = vec![name];
        cells.extend(row.count.map(|count| count.to_string()));
        cells.extend(pair(row.mean_ns));
        cells.push(row.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}")));
        cells.extend(pair(row.p50_ns));
        cells.extend(pair(row.p99_ns));
        cells
    });
    let heads = heads.map(str::to_owned).to_vec();
    Table { heads, rows: rows.collect() }.to_text()
}
