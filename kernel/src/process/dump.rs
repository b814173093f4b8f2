//! Core dumps: the memory and registers of a program that a signal ends, as an ELF file.
//!
//! ```text
//! ELF header | program headers: notes, one per area | notes | pages of the areas
//! ```
//!
//! The dying thread writes it, before its process ends: pages that are in memory, of areas that can be
//! read; the others are holes. The name follows `/proc/sys/kernel/core_pattern`. Left out: registers of the
//! other threads, which run on meanwhile; `coredump_filter`; patterns that name a program to pipe to.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::fs::OpenFlags;
use abi::memory::Protection;
use abi::ptrace::UserRegisters;
use abi::signal::{Signal, SignalSet};
use base::sync::{Mutex, rank};
use base::task;
use base::user::UserContext;
use fs::OpenFile;
use fs::file::Transfer;
use fs::open::Request;
use fs::walk::Lookup;
use zerocopy::IntoBytes;

use super::limits::Resource;
use super::thread::Thread;
use super::tracing::registers;
use crate::memory::{PAGE, page_ceil};
use crate::posted::trampoline;
use crate::signal::SignalInfo;

/// Signals that dump by default.
pub const DUMPING: SignalSet = SignalSet(
    Signal::SIGQUIT.bit()
        | Signal::SIGILL.bit()
        | Signal::SIGTRAP.bit()
        | Signal::SIGABRT.bit()
        | Signal::SIGBUS.bit()
        | Signal::SIGFPE.bit()
        | Signal::SIGSEGV.bit()
        | Signal::SIGXCPU.bit()
        | Signal::SIGXFSZ.bit()
        | Signal::SIGSYS.bit(),
);
/// In a wait status: memory was dumped.
pub const DUMPED: u32 = 0x80;

/// `/proc/sys/kernel/core_pattern`; `None` as it is at first.
pub static PATTERN: Mutex<Option<Vec<u8>>> = Mutex::new(&rank::SETTINGS, None);
/// What it is at first.
pub const FIRST_PATTERN: &str = "core";
/// `/proc/sys/kernel/core_uses_pid`
pub static USES_PID: AtomicU64 = AtomicU64::new(0);

const PERMISSIONS: u32 = 0o600;
const HEADER_SIZE: u64 = 64;
const PROGRAM_HEADER_SIZE: u64 = 56;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const STATUS_NOTE: u32 = 1;
const FLOATING_POINT_NOTE: u32 = 2;
const PROCESS_NOTE: u32 = 3;
const AUXILIARY_NOTE: u32 = 6;
const SIGNAL_NOTE: u32 = 0x5349_4749;
/// Bytes of the state that `fxsave` stores.
const LEGACY_SIZE: usize = 512;
/// Most areas of one dump.
const MOST_AREAS: usize = 65_000;
/// Pages between two moments at which others get the core.
const PAGES_IN_TURN: u64 = 64;

/// Whether a process that the signal ends by default would be dumped.
pub fn would_dump(thread: &Thread, signal: Signal) -> bool {
    DUMPING.contains(signal) && thread.process.limits.soft(Resource::Core) >= PAGE
}

/// Writes the dump of the thread's program, which `info` ends. Whether there is one.
pub async fn dump(thread: &Arc<Thread>, context: &mut UserContext, info: &SignalInfo) -> bool {
    if !would_dump(thread, info.signal) || !thread.space().is_dumpable() {
        return false;
    }
    let Some(file) = open(thread, info.signal) else { return false };
    let limit = thread.process.limits.soft(Resource::Core);
    let written = Writer { thread, file, limit }.write(context, info).await;
    written.is_some()
}

/// Makes the file, in the place of what has its name.
fn open(thread: &Thread, signal: Signal) -> Option<Arc<OpenFile>> {
    let name = file_name(thread, signal)?;
    let (root, current) = thread.directory().places();
    let identity = thread.identity();
    let lookup = Lookup { root: &root, start: &current, identity: &identity };
    let _ = fs::tree::unlink(lookup, &name);
    let exclusive = OpenFlags::CREAT | OpenFlags::EXCL | OpenFlags::NOFOLLOW;
    let flags = exclusive | OpenFlags::WRONLY | OpenFlags::LARGEFILE;
    let request = Request::new(flags.bits(), PERMISSIONS, 0).ok()?;
    fs::open::open(lookup, &name, request, thread).ok()
}

/// The name by the pattern; `None` when it names a program.
fn file_name(thread: &Thread, signal: Signal) -> Option<Vec<u8>> {
    let pattern = PATTERN.lock().clone().unwrap_or_else(|| FIRST_PATTERN.as_bytes().to_vec());
    if pattern.first().is_none_or(|first| *first == b'|') {
        return None;
    }
    let process = &thread.process;
    let credentials = thread.credentials();
    let mut name = Vec::new();
    let mut has_pid = false;
    let mut rest = pattern.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            name.push(*byte);
            continue;
        }
        let text = match rest.next()? {
            b'%' => "%".into(),
            b'p' | b'P' => {
                has_pid = true;
                format!("{}", process.pid)
            }
            b'i' | b'I' => format!("{}", thread.tid()),
            b'u' => format!("{}", credentials.user.real),
            b'g' => format!("{}", credentials.group.real),
            b's' => format!("{}", signal.number()),
            b't' => format!("{}", base::time::wall_ns() / 1_000_000_000),
            b'c' => format!("{}", process.limits.soft(Resource::Core)),
            b'd' => "1".into(),
            b'e' | b'f' => {
                let own = thread.name().into_iter().take_while(|byte| *byte != 0);
                name.extend(own.map(|byte| if byte == b'/' { b'!' } else { byte }));
                continue;
            }
            _ => continue,
        };
        name.extend_from_slice(text.as_bytes());
    }
    if !has_pid && USES_PID.load(Ordering::Relaxed) != 0 {
        name.extend_from_slice(format!(".{}", process.pid).as_bytes());
    }
    Some(name)
}

/// Bytes in the order of the machine.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn word(&mut self, value: u64) -> &mut Bytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn half(&mut self, value: u32) -> &mut Bytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn number(&mut self, value: i32) -> &mut Bytes {
        self.half(value.cast_unsigned())
    }

    fn short(&mut self, value: u16) -> &mut Bytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The first bytes of `bytes`, filled up with zeros to `size`.
    fn padded(&mut self, bytes: &[u8], size: usize) -> &mut Bytes {
        let end = self.0.len() + size;
        self.0.extend(bytes.iter().take(size));
        self.0.resize(end, 0);
        self
    }

    fn note(&mut self, kind: u32, content: &[u8]) {
        const NAME: &[u8; 8] = b"CORE\0\0\0\0";
        self.half(5).half(content.len() as u32).half(kind).bytes(NAME).bytes(content);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

struct Writer<'a> {
    thread: &'a Arc<Thread>,
    file: Arc<OpenFile>,
    limit: u64,
}

impl Writer<'_> {
    async fn write(&self, context: &mut UserContext, info: &SignalInfo) -> Option<()> {
        let space = self.thread.space();
        let areas = space.dump_areas(MOST_AREAS).ok()?;
        let mut notes = self.notes(context, info);
        let head = HEADER_SIZE + PROGRAM_HEADER_SIZE * (areas.len() as u64 + 1);
        let content_at = page_ceil(head + notes.0.len() as u64)?;
        let mut text = Bytes::default();
        header(&mut text, areas.len() as u16 + 1);
        program_header(&mut text, NOTE, 0, (head, notes.0.len() as u64), (0, 0), 0);
        let mut offset = content_at;
        for area in &areas {
            let size = area.end - area.start;
            let in_file = if area.protection.contains(Protection::READ) { size } else { 0 };
            let rights = flags_of(area.protection);
            program_header(&mut text, LOAD, rights, (offset, in_file), (area.start, size), PAGE);
            offset += in_file;
        }
        text.0.append(&mut notes.0);
        self.put(0, &text.0)?;
        let mut offset = content_at;
        let mut page = Vec::new();
        page.try_reserve_exact(PAGE as usize).ok()?;
        page.resize(PAGE as usize, 0);
        let mut turns = 0_u64;
        for area in areas.iter().filter(|area| area.protection.contains(Protection::READ)) {
            for at in (area.start..area.end).step_by(PAGE as usize) {
                turns += 1;
                if turns.is_multiple_of(PAGES_IN_TURN) {
                    task::yield_now().await;
                    if self.thread.signals.must_exit() {
                        return None;
                    }
                }
                let place = offset + (at - area.start);
                if place + PAGE > self.limit {
                    return Some(());
                }
                if space.read_now(at, &mut page) == page.len() {
                    self.put(place, &page)?;
                }
            }
            offset += area.end - area.start;
        }
        // What was not in memory at the end is there as a hole.
        let size = offset.min(self.limit);
        let identity = self.thread.identity();
        fs::tree::resize(self.file.inode(), &identity, size).ok()
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Option<()> {
        let room = usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut rest = bytes.get(..room).unwrap_or(bytes);
        let count = self.file.write_at(offset, &mut rest, Transfer::PLAIN, false).ok()?;
        (count > 0).then_some(())
    }

    fn notes(&self, context: &mut UserContext, info: &SignalInfo) -> Bytes {
        let thread = self.thread;
        let space = thread.space();
        let fpu = registers::floating_point(context);
        let second = trampoline::second_pointer(&space, context);
        let own = registers::of(context, registers::NO_CALL, second);
        let mut notes = Bytes::default();
        notes.note(STATUS_NOTE, &self.status(info, &own));
        notes.note(PROCESS_NOTE, &self.process());
        notes.note(SIGNAL_NOTE, info.encode().as_bytes());
        notes.note(AUXILIARY_NOTE, &super::procfs::auxiliary_vector_of(thread));
        notes.note(FLOATING_POINT_NOTE, fpu.get(..LEGACY_SIZE).unwrap_or(&fpu));
        notes
    }

    /// `struct elf_prstatus`
    fn status(&self, info: &SignalInfo, own: &UserRegisters) -> Vec<u8> {
        let thread = self.thread;
        let process = &thread.process;
        let mut text = Bytes::default();
        text.number(info.signal.number()).number(info.code).number(info.errno);
        text.short(info.signal.number() as u16).short(0);
        text.word(thread.signals.pending().0).word(thread.signals.blocked().0);
        text.number(thread.tid().0).number(process.parent_pid().0);
        text.number(process.group().0).number(process.session().0);
        let (own_time, children) = (process.usage(), process.ended_children.get());
        for ns in [own_time.user_ns, own_time.system_ns, children.user_ns, children.system_ns] {
            text.word(ns / 1_000_000_000).word(ns % 1_000_000_000 / 1000);
        }
        text.bytes(own.as_bytes()).half(1).half(0);
        text.0
    }

    /// `struct elf_prpsinfo`
    fn process(&self) -> Vec<u8> {
        let process = &self.thread.process;
        let credentials = self.thread.credentials();
        let mut text = Bytes::default();
        text.bytes(&[0, b'R', 0, 0]).half(0).word(0);
        text.half(credentials.user.real).half(credentials.group.real);
        text.number(process.pid.0).number(process.parent_pid().0);
        text.number(process.group().0).number(process.session().0);
        let name = self.thread.name();
        text.padded(&name, 16).padded(&name, 80);
        text.0
    }
}

fn header(text: &mut Bytes, headers: u16) {
    /// 64 bits, little-endian, version 1.
    const MAGIC: &[u8; 8] = b"\x7fELF\x02\x01\x01\0";
    const CORE: u16 = 4;
    const MACHINE: u16 = 62;
    text.padded(MAGIC, 16).short(CORE).short(MACHINE).half(1).word(0).word(HEADER_SIZE).word(0);
    text.half(0).short(HEADER_SIZE as u16).short(PROGRAM_HEADER_SIZE as u16).short(headers);
    text.short(0).short(0).short(0);
}

fn program_header(
    text: &mut Bytes,
    kind: u32,
    flags: u32,
    (offset, in_file): (u64, u64),
    (address, size): (u64, u64),
    alignment: u64,
) {
    text.half(kind).half(flags).word(offset).word(address).word(0);
    text.word(in_file).word(size).word(alignment);
}

fn flags_of(protection: Protection) -> u32 {
    let bit = |right, bit| if protection.contains(right) { bit } else { 0 };
    bit(Protection::EXECUTE, 1) | bit(Protection::WRITE, 2) | bit(Protection::READ, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_their_sizes() {
        let mut text = Bytes::default();
        header(&mut text, 3);
        assert_eq!(text.0.len() as u64, HEADER_SIZE);
        program_header(&mut text, LOAD, 5, (0x1000, 0x2000), (0x40_0000, 0x3000), PAGE);
        assert_eq!(text.0.len() as u64, HEADER_SIZE + PROGRAM_HEADER_SIZE);
    }

    #[test]
    fn a_note_is_a_multiple_of_four_bytes() {
        let mut text = Bytes::default();
        text.note(STATUS_NOTE, &[1, 2, 3]);
        assert_eq!(text.0.len(), 12 + 8 + 4);
    }
}
