//! `/proc/ferry/counters`, and `ferry` in the directory of a process or thread.
//!
//! ```text
//! /proc/ferry/counters        core0 traps 17              one counter of one core per line
//! /proc/ferry/stages          call way calls served trapped sent taken handled answered
//!                             read remote 9 9 1 2 3 4 5   one line per kind of call; see `stages`
//! /proc/PID/ferry             call posted remote local spins waits
//!                             read 0 12 0 11 1            one line per call that occurred
//! /proc/PID/task/TID/ferry    traps 17                    one counter per line
//! ```

use alloc::vec::Vec;

use abi::Errno;
use abi::console::{CORE_COUNTERS, call_way};
use base::cpu::CpuId;

use super::process::Subject;
use super::{Text, put};
use crate::{counters, dispatch, stages};

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
        put!(text, "{} {way} {} {}", dispatch::name(number), stamps.calls, stamps.served);
        for sum in stamps.sums {
            put!(text, " {sum}");
        }
        put!(text, "\n");
    }
    Ok(text.0)
}

/// What a process called, or what a thread did.
pub(super) fn calls(subject: &Subject) -> Generated {
    let mut text = Text::default();
    if subject.is_thread() {
        let thread = subject.thread()?;
        let counters = &thread.counters;
        let posted = counters.posted(thread.syspage().as_deref());
        let (traps, doorbells) = (counters.traps.get(), counters.doorbells.get());
        put!(text, "traps {traps}\nposted {posted}\ndoorbells {doorbells}\n");
        put!(text, "switches {}\n", counters.switches.get());
        return Ok(text.0);
    }
    put!(text, "call posted remote local spins waits\n");
    for (number, counts) in counters::of_process(&*subject.process()?) {
        match dispatch::name(number) {
            "unknown call" => put!(text, "{number}"),
            name => put!(text, "{name}"),
        }
        let counters::CallCounts { posted, remote, local, spins, waits } = counts;
        put!(text, " {posted} {remote} {local} {spins} {waits}\n");
    }
    Ok(text.0)
}
