//! `/proc/ferry/counters`, and `ferry` in the directory of a process or thread.
//!
//! ```text
//! /proc/ferry/counters        core0 traps 17              one counter of one core per line
//! /proc/ferry/stages          call way calls served trapped sent taken handled answered
//!                             read remote 9 9 1 2 3 4 5   one line per kind of call; see `stages`
//! /proc/ferry/polls           call polls longest_ns
//!                             read 12 4711                one line per call whose handler was polled
//! /proc/PID/ferry             call posted remote local spins waits home_ns away_ns choice
//!                             read 0 12 0 11 1 240 700 home   one line per call that occurred
//! /proc/PID/task/TID/ferry    traps 17                    one counter per line
//! ```

use alloc::vec;
use alloc::vec::Vec;

use abi::Errno;
use abi::console::{CORE_COUNTERS, call_way};
use base::cpu::CpuId;
use policy::route;
use policy::table::CALL_LIMIT;

use super::process::Subject;
use super::{Text, put};
use crate::process::Process;
use crate::{counters, polls, stages};

type Generated = Result<Vec<u8>, Errno>;

/// What each core did.
pub(super) fn cores() -> Generated {
    let mut text = Text::default();
    for core in CpuId::all() {
        for (name, value) in CORE_COUNTERS.iter().zip(counters::of_core(core).values) {
            put!(text, "core{} {name} {value}\n", core.index());
        }
    }
    Ok(text.0)
}

/// Sums of the stamps of every kind of call; only the head while stages are not timed.
pub(super) fn stamps() -> Generated {
    let mut text = Text::default();
    put!(text, "call way calls served trapped sent taken handled answered\n");
    for (number, way, stamps) in stages::all() {
        let way = call_way::NAMES.get(way).copied().unwrap_or("?");
        put!(text, "{} {way} {} {}", route::name(number), stamps.calls, stamps.served);
        for sum in stamps.sums {
            put!(text, " {sum}");
        }
        put!(text, "\n");
    }
    Ok(text.0)
}

/// Polls of the handlers of every call.
pub(super) fn handler_polls() -> Generated {
    let mut text = Text::default();
    put!(text, "call polls longest_ns\n");
    for (number, count, longest_ns) in polls::all() {
        put!(text, "{} {count} {longest_ns}\n", route::name(number));
    }
    Ok(text.0)
}

/// What a process called, or what a thread did.
pub(super) fn calls(subject: &Subject) -> Generated {
    let mut text = Text::default();
    if subject.is_thread() {
        let thread = subject.thread()?;
        let counters = &thread.counters;
        let here = thread.syspage().map_or(0, |syspage| syspage.posted_counts().sum());
        let posted: u64 = counters.posted_before.get() + here;
        let (traps, doorbells) = (counters.traps.get(), counters.doorbells.get());
        put!(text, "traps {traps}\nposted {posted}\ndoorbells {doorbells}\n");
        put!(text, "switches {}\n", counters.switches.get());
        return Ok(text.0);
    }
    put!(text, "call posted remote local spins waits home_ns away_ns choice\n");
    let process = subject.process()?;
    for (number, counts) in process.counters.calls(posted_calls(&process)) {
        match route::name(number) {
            "unknown call" => put!(text, "{number}"),
            name => put!(text, "{name}"),
        }
        let counters::CallCounts { posted, remote, local, spins, waits } = counts;
        let account = process.counters.account(number);
        let (home_ns, away_ns) = account.costs_ns();
        let choice = if account.is_away() { "away" } else { "home" };
        put!(text, " {posted} {remote} {local} {spins} {waits} {home_ns} {away_ns} {choice}\n");
    }
    Ok(text.0)
}

/// What the process has posted, per call number, at the syspages that it has now.
fn posted_calls(process: &Process) -> Vec<u64> {
    // Kept until the lock of the process is free again: the last one to let go frees pages.
    let mut syspages = Vec::new();
    process.for_each_thread(|thread| syspages.extend(thread.syspage()));
    let mut counts = vec![0; CALL_LIMIT];
    for syspage in &syspages {
        counts.iter_mut().zip(syspage.posted_counts()).for_each(|(sum, count)| *sum += count);
    }
    counts
}
