//! `/proc/ferry/servers` and `/proc/ferry/machine`.
//!
//! ```text
//! /proc/ferry/servers     server core restarts restarted_ms call
//!                         file 1 0 0 -                one line per server: where it is carried; how often
//!                                                     handlers panicked, when last, in which call
//! /proc/ferry/machine     trap_ns 105                 measured at boot (`calibration`); a line that could
//!                         flight_ns 0 1 52            not be measured is missing
//!                         wake_ns 1 4100
//! ```
//!
//! Root moves a server by writing its name and a core: `echo file 0 > /proc/ferry/servers`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use base::cpu::CpuId;
use fs::Identity;
use fs::pseudo::{Content, Entry};
use policy::route::{self, CLASSES, Class};

use super::{Text, put};
use crate::{counters, machine};

struct Servers;

/// Where each server is carried.
pub(super) fn servers(number: u64) -> Entry {
    Entry::file(number, Arc::new(Servers)).with_mode(0o644)
}

impl Content for Servers {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        put!(text, "server core restarts restarted_ms call\n");
        for class in CLASSES {
            let restarts = counters::restarts(class);
            let call = match restarts.count {
                0 => "-",
                _ => route::name(restarts.last_call),
            };
            let (core, last_ms) =
                (machine::server_core(class).index(), restarts.last_ns / 1_000_000);
            put!(text, "{} {core} {} {last_ms} {call}\n", class.name(), restarts.count);
        }
        Ok(text.0)
    }

    fn write(&self, _: &Identity, _: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let (class, core) = parse_move(bytes).ok_or(Errno::EINVAL)?;
        let core = CpuId::all().nth(core).ok_or(Errno::EINVAL)?;
        machine::move_server(class, core);
        Ok(bytes.len())
    }
}

/// A name of a server and the number of a core.
fn parse_move(bytes: &[u8]) -> Option<(Class, usize)> {
    let mut words = core::str::from_utf8(bytes).ok()?.split_ascii_whitespace();
    let (name, core, end) = (words.next()?, words.next()?, words.next());
    let class = CLASSES.into_iter().find(|class| class.name() == name)?;
    let core = core.bytes().all(|byte| byte.is_ascii_digit()).then(|| core.parse().ok())??;
    end.is_none().then_some((class, core))
}

/// What was measured at boot.
pub(super) fn measured() -> Result<Vec<u8>, Errno> {
    let mut text = Text::default();
    if let Some(ns) = machine::trap_ns() {
        put!(text, "trap_ns {ns}\n");
    }
    for (one, other, ns) in machine::flights() {
        put!(text, "flight_ns {one} {other} {ns}\n");
    }
    for (core, ns) in machine::wakes() {
        put!(text, "wake_ns {core} {ns}\n");
    }
    Ok(text.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_a_server_and_a_core() {
        assert_eq!(parse_move(b"file 0\n"), Some((Class::File, 0)));
        assert_eq!(parse_move(b"  time\t7"), Some((Class::Time, 7)));
        for wrong in [&b""[..], b"file", b"file x", b"file -1", b"file +1", b"disk 0", b"file 0 0"]
        {
            assert_eq!(parse_move(wrong), None, "{wrong:?}");
        }
    }
}
