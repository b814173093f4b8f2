//! Results of simulations as text.

use sim::Outcome;
use sim::explain::Explanation;

use crate::bench::table::Table;

fn table<const N: usize>(heads: [&str; N], rows: Vec<Vec<String>>) -> String {
    let heads = heads.map(str::to_owned).to_vec();
    if rows.is_empty() { String::new() } else { format!("\n{}", Table { heads, rows }.to_text()) }
}

/// What a simulation found.
pub fn outcome(outcome: &Outcome) -> String {
    let seconds = |ticks: u64| ticks as f64 / outcome.ticks_per_second.max(1) as f64;
    let ended = outcome.ended.max(1) as f64;
    let share = |ticks: u64| format!("{:.1}", ticks as f64 * 100.0 / ended);
    let head = format!(
        "{} calls in {:.6} s: {:.0} per second; {} events; lock found taken {:.1} % of the times\n",
        outcome.calls(),
        seconds(outcome.ended),
        outcome.throughput(),
        outcome.events,
        outcome.contention() * 100.0
    );
    let streams = outcome.streams.iter().map(|stream| {
        let mut row = vec![stream.core.to_string(), stream.calls.to_string()];
        row.push(stream.away.to_string());
        row.push(format!("{:.6}", seconds(stream.finished)));
        let times =
            [stream.user, stream.kernel, stream.lock_wait, stream.away_wait, stream.blocked];
        row.extend(times.map(share));
        row
    });
    let heads = [
        "core",
        "calls",
        "away",
        "done, s",
        "user %",
        "kernel %",
        "locks %",
        "away %",
        "blocked %",
    ];
    let streams = table(heads, streams.collect());
    let servers = outcome.servers.iter().filter(|server| server.requests > 0).map(|server| {
        vec![
            server.core.to_string(),
            server.requests.to_string(),
            share(server.busy),
            share(server.spinning),
            format!("{:.3}", seconds(server.queued) * 1e6 / server.requests as f64),
            server.woken.to_string(),
        ]
    });
    let heads = ["kernel core", "requests", "busy %", "spinning %", "queue, us each", "woken"];
    let servers = table(heads, servers.collect());
    let locks = outcome.locks.iter().map(|(number, lock)| {
        vec![
            number.to_string(),
            lock.acquired.to_string(),
            format!("{:.1}", lock.contended as f64 * 100.0 / lock.acquired.max(1) as f64),
            share(lock.held),
            lock.most_waiting.to_string(),
        ]
    });
    let heads = ["lock", "taken", "found taken %", "held %", "most waiting"];
    head + &streams + &servers + &table(heads, locks.collect())
}

/// What bounds a simulation.
pub fn explanation(explanation: &Explanation) -> String {
    let shares = &explanation.shares;
    let parts = [
        ("the programs' own", shares.user),
        ("calls on their own core", shares.kernel),
        ("waiting for locks", shares.locks),
        ("waiting for answers of kernel cores", shares.away),
        ("waiting for devices, timers and others", shares.blocked),
        ("waiting for the path to memory", shares.memory),
        ("done before the last core", shares.done),
    ];
    let mut text = outcome(&explanation.outcome);
    let rows = parts.map(|(name, share)| vec![name.to_owned(), format!("{:.1}", share * 100.0)]);
    text += &table(["time of the application cores", "share %"], rows.to_vec());
    let rows = explanation.changes.iter().map(|(change, ratio)| {
        vec![change.text().to_owned(), format!("{:+.1}", (ratio - 1.0) * 100.0)]
    });
    text += &table(["with", "throughput %"], rows.collect());
    text += "\n";
    text += &match explanation.changes.first() {
        Some((change, ratio)) if *ratio > 1.02 => {
            format!("What would help most: {}.\n", change.text())
        }
        _ => "The applications themselves are the bound: no change would bring 2 %.\n".to_owned(),
    };
    text
}
