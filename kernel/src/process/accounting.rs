//! `acct`: a record of every process that ends, in the format of `acct(5)`, version 3.
//!
//! There is one file for the machine. A record is appended before the parent learns of the end, whatever limits the
//! process had; where the file needs I/O first, a task of the kernel goes on with it. Recording does not stop when
//! the file system is nearly full; a record that finds no room is lost.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use abi::Errno;
use base::cpu::CpuId;
use base::sync::{Mutex, rank};
use base::task;
use fs::OpenFile;
use fs::file::Transfer;
use fs::pending;
use zerocopy::{Immutable, IntoBytes};

use super::process::Process;
use super::session;
use super::thread::{NAME_SIZE, Thread};

/// Records of this layout.
const VERSION: u8 = 3;
/// Ticks in a second of the times in a record.
const TICKS: u64 = 100;

/// Bits of `flag`.
mod flag {
    /// It never called `execve`.
    pub const FORKED: u8 = 1;
    /// It left a core dump.
    pub const DUMPED: u8 = 8;
    /// A signal ended it.
    pub const KILLED: u8 = 16;
}

/// `struct acct_v3`
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Record {
    flag: u8,
    version: u8,
    terminal: u16,
    status: u32,
    user: u32,
    group: u32,
    process: u32,
    parent: u32,
    began_s: u32,
    /// A `float`.
    elapsed_ticks: u32,
    user_ticks: u16,
    system_ticks: u16,
    memory_kib: u16,
    characters: u16,
    blocks: u16,
    minor_faults: u16,
    major_faults: u16,
    swaps: u16,
    name: [u8; NAME_SIZE],
}

const _: () = assert!(size_of::<Record>() == 64);

static IS_ON: AtomicBool = AtomicBool::new(false);
static FILE: Mutex<Option<Arc<OpenFile>>> = Mutex::new(&rank::OPEN_FILE, None);

/// Records go to the end of a file from now on, or nowhere. The file is a regular one, open for appending.
pub fn record_to(file: Option<Arc<OpenFile>>) {
    IS_ON.store(file.is_some(), Ordering::Relaxed);
    let old = core::mem::replace(&mut *FILE.lock(), file);
    drop(old);
}

/// A number with 13 bits of fraction and 3 bits of an exponent to the base of 8 (`comp_t`), rounded.
fn compressed(mut value: u64) -> u16 {
    const FRACTION: u64 = 0x1fff;
    let mut exponent = 0;
    let mut is_half = false;
    while value > FRACTION {
        is_half = value & 4 != 0;
        value >>= 3;
        exponent += 1;
    }
    if is_half {
        value += 1;
        if value > FRACTION {
            value >>= 3;
            exponent += 1;
        }
    }
    if exponent > 7 { u16::MAX } else { (exponent << 13) + value as u16 }
}

fn ticks(time_ns: u64) -> u64 {
    time_ns / (1_000_000_000 / TICKS)
}

/// A process ends whose last thread this is; it had `memory` bytes mapped.
pub(super) fn process_ended(process: &Process, last: &Thread, status: u32, memory: u64) {
    if !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    let Some(file) = FILE.lock().clone() else { return };
    let record = record_of(process, last, status, memory);
    let append = move || {
        let mut bytes = record.as_bytes();
        file.write_as(&mut bytes, Transfer::PLAIN, true)
    };
    // A record that cannot be written is lost, as on Linux.
    if append() == Err(Errno::EIOCBQUEUED) {
        let _ = task::spawn(CpuId::current(), async move {
            let _ = pending::resume(append).await;
        });
    }
}

fn record_of(process: &Process, last: &Thread, status: u32, memory: u64) -> Record {
    let credentials = last.credentials();
    let usage = process.ended_threads.get();
    let elapsed_ns = base::time::now_ns().saturating_sub(process.start_ns);
    let began_ns = base::time::wall_ns().saturating_sub(elapsed_ns);
    let terminal = session::terminal_of(process.session());
    let device = terminal.map_or(0, |terminal| terminal.device());
    let is_killed = status & 0x7f != 0;
    let has_executed = process.has_executed.load(Ordering::Relaxed);
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    Record {
        flag: bit(!has_executed, flag::FORKED)
            | bit(is_killed, flag::KILLED)
            | bit(status & 0x80 != 0, flag::DUMPED),
        version: VERSION,
        terminal: device as u16,
        status,
        user: credentials.user.real,
        group: credentials.group.real,
        process: process.pid.0.cast_unsigned(),
        parent: process.parent_pid().0.cast_unsigned(),
        began_s: (began_ns / 1_000_000_000) as u32,
        elapsed_ticks: (ticks(elapsed_ns) as f32).to_bits(),
        user_ticks: compressed(ticks(usage.user_ns)),
        system_ticks: compressed(ticks(usage.system_ns)),
        memory_kib: compressed(memory / 1024),
        characters: 0,
        blocks: 0,
        minor_faults: compressed(usage.faults),
        major_faults: 0,
        swaps: 0,
        name: last.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::compressed;

    #[test]
    fn numbers_keep_thirteen_bits() {
        assert_eq!(compressed(0x1fff), 0x1fff);
        assert_eq!(compressed(0x2000), 1 << 13 | 0x400);
        assert_eq!(compressed(0x2004), 1 << 13 | 0x401);
        assert_eq!(compressed(0xffff), 2 << 13 | 0x400);
        assert_eq!(compressed(u64::MAX), u16::MAX);
    }
}
