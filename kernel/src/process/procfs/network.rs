//! What `/proc` says of sockets: `/proc/net/unix`, and the settings in `/proc/sys/net`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use fs::Identity;
use fs::pseudo::{Content, Entry};
use net::option::BUFFER_LIMIT;
use net::unix::{self, MOST_DATAGRAMS, MOST_WAITING};

use super::directory::{Fixed, MakeEntry};
use super::settings::{directory, value};
use super::{Text, put};
use crate::socket::CONTROL_LIMIT;

/// The flag of a socket that takes connections (`__SO_ACCEPTCON`).
const LISTENS: u32 = 1 << 16;

/// `/proc/net`
pub(super) fn root(number: u64) -> Entry {
    let names: &[(&str, MakeEntry)] =
        &[("unix", |number| Entry::file(number, Arc::new(local_sockets)))];
    Entry::directory(number, Arc::new(Fixed { first_number: number + 0x60, names }))
}

fn local_sockets() -> Result<Vec<u8>, Errno> {
    let mut text = Text::default();
    put!(text, "Num       RefCount Protocol Flags    Type St Inode Path\n");
    for socket in unix::summaries() {
        let flags = if socket.is_listening { LISTENS } else { 0 };
        let kind = socket.kind.number();
        // Addresses of the kernel's memory are nobody's business.
        put!(text, "{:016}: {:08X} {:08X} {flags:08X} ", 0, socket.references, 0);
        put!(text, "{kind:04X} {:02X} {:>5}", socket.state, socket.inode);
        if let Some(first) = socket.path.first() {
            let is_abstract = *first == 0;
            let end = socket.path.len() - usize::from(!is_abstract);
            text.bytes(b" ");
            for &byte in socket.path.get(..end).unwrap_or_default() {
                text.bytes(&[if byte == 0 { b'@' } else { byte }]);
            }
        }
        text.bytes(b"\n");
    }
    Ok(text.0)
}

/// A number that can be changed.
struct Number(&'static AtomicUsize);

impl Content for Number {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        put!(text, "{}\n", self.0.load(Ordering::Relaxed));
        Ok(text.0)
    }

    fn write(&self, _: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if offset == 0 {
            let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
            let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
            let number: i32 = text.parse().map_err(|_| Errno::EINVAL)?;
            self.0.store(usize::try_from(number).map_err(|_| Errno::EINVAL)?, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }
}

fn changeable(number: u64, cell: &'static AtomicUsize) -> Entry {
    Entry::file(number, Arc::new(Number(cell))).with_mode(0o644)
}

/// `/proc/sys/net`
pub(super) const SETTINGS: &[(&str, MakeEntry)] =
    &[("core", |number| directory(number, 6, CORE)), ("unix", |number| directory(number, 7, UNIX))];

const CORE: &[(&str, MakeEntry)] = &[
    ("optmem_max", |number| value(number, CONTROL_LIMIT)),
    ("rmem_default", |number| value(number, BUFFER_LIMIT)),
    ("rmem_max", |number| value(number, BUFFER_LIMIT)),
    ("somaxconn", |number| changeable(number, &MOST_WAITING)),
    ("wmem_default", |number| value(number, BUFFER_LIMIT)),
    ("wmem_max", |number| value(number, BUFFER_LIMIT)),
];

const UNIX: &[(&str, MakeEntry)] =
    &[("max_dgram_qlen", |number| changeable(number, &MOST_DATAGRAMS))];
