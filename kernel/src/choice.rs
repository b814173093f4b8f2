//! Which way a call goes: the path in force, or on path `auto` what its account says.

use abi::trace::EventKind;
use base::cpu::CpuId;
use base::time;
use policy::choice::{Choice, Wanted};
use policy::route::{self, CallPath, Paths};

use crate::machine;
use crate::process::Thread;
use crate::trace::{self, What};

/// How a call goes now.
pub struct Way {
    /// The path.
    pub path: CallPath,
    /// Its cost is wanted for the account of its process.
    pub is_timed: bool,
}

/// How a call goes now; `None` when it is unknown or must stay.
#[inline]
pub fn way_of(thread: &Thread, number: usize) -> Option<Way> {
    let row = route::route(number)?;
    if row.paths == Paths::LOCAL {
        return None;
    }
    let core = machine::server_core(row.class);
    let is_elsewhere = core != CpuId::current();
    let way = match machine::path() {
        Wanted::Fixed(path) => {
            Way { path: route::choose_path(row, path, is_elsewhere), is_timed: false }
        }
        Wanted::Auto if is_elsewhere && machine::is_at_hand(core) => {
            let Choice { away, timed } = thread.process.counters.choose(number);
            Way { path: if away { CallPath::Remote } else { CallPath::Local }, is_timed: timed }
        }
        Wanted::Auto => Way { path: CallPath::Local, is_timed: false },
    };
    Some(way)
}

/// A timed call that began at `begin_ns` has its answer.
#[cold]
pub fn note_cost(thread: &Thread, number: usize, away: bool, begin_ns: u64) {
    let ns = time::now_ns().wrapping_sub(begin_ns);
    if let Some(away) = thread.process.counters.observe(number, away, ns) {
        let path = if away { CallPath::Remote } else { CallPath::Local };
        let (thread, detail, value) = (thread.number(), number as u32, path as u64);
        trace::now(What { thread, detail, value, ..What::of(EventKind::PathChange) });
    }
}
