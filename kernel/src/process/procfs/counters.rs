//! `/proc/ferry/counters`, and `ferry` in the directory of a process or thread.
//!
//! ```text
//! /proc/ferry/counters        core0 traps 17              one counter of one core per line
//! /proc/PID/ferry             call posted remote local spins waits
//!                             read 0 12 0 11 1            one line per call that occurred
//! /proc/PID/task/TID/ferry    traps 17                    one counter per line
//! ```

use alloc::vec::Vec;

use abi::Errno;
use abi::console::CORE_COUNTERS;
use base::cpu::CpuId;

use super::process::Subject;
use super::{Text, put};
use crate::{counters, dispatch};

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
