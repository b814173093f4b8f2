//! `/proc/sys`: settings that programs look at, and the two names that can be changed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::process::NAME_LENGTH;
use fs::pseudo::{Content, Entry};

use super::directory::{Fixed, MakeEntry};
use super::{Text, number, put};
use crate::process::credentials::LAST_CAPABILITY;
use crate::process::file_table::DESCRIPTOR_LIMIT;
use crate::process::ids::PID_LIMIT;
use crate::process::system;
use crate::process::table;

/// A setting that is a fact.
fn fact(number: u64, text: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Entry {
    Entry::file(
        number,
        Arc::new(move || {
            let mut line = text();
            line.push(b'\n');
            Ok(line)
        }),
    )
}

fn value(number: u64, value: u64) -> Entry {
    fact(number, move || {
        let mut text = Text::default();
        put!(text, "{value}");
        text.0
    })
}

/// The host name or the domain name.
struct Name {
    get: fn() -> Vec<u8>,
    set: fn(&[u8]),
}

impl Content for Name {
    fn generate(&self) -> Result<Vec<u8>, Errno> {
        let mut name = (self.get)();
        name.push(b'\n');
        Ok(name)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if offset == 0 {
            let end = bytes.iter().position(|byte| matches!(byte, 0 | b'\n'));
            let name = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            (self.set)(name.get(..NAME_LENGTH - 1).unwrap_or(name));
        }
        Ok(bytes.len())
    }
}

fn name(number: u64, get: fn() -> Vec<u8>, set: fn(&[u8])) -> Entry {
    Entry::file(number, Arc::new(Name { get, set })).with_mode(0o644)
}

fn directory(number: u64, place: u64, names: &'static [(&'static str, MakeEntry)]) -> Entry {
    let first_number = number::SETTINGS + place * 0x20;
    Entry::directory(number, Arc::new(Fixed { first_number, names }))
}

/// `/proc/sys`
pub(super) fn root() -> Fixed {
    Fixed {
        first_number: number::SETTINGS,
        names: &[
            ("fs", |number| directory(number, 1, FILES)),
            ("kernel", |number| directory(number, 2, KERNEL)),
            ("vm", |number| directory(number, 4, MEMORY)),
        ],
    }
}

const FILES: &[(&str, MakeEntry)] = &[
    ("file-max", |number| value(number, i64::MAX.unsigned_abs())),
    ("nr_open", |number| value(number, DESCRIPTOR_LIMIT)),
    ("pipe-max-size", |number| value(number, 1 << 20)),
];

const KERNEL: &[(&str, MakeEntry)] = &[
    ("cap_last_cap", |number| value(number, u64::from(LAST_CAPABILITY))),
    ("domainname", |number| name(number, system::domain_name, system::set_domain_name)),
    ("hostname", |number| name(number, system::host_name, system::set_host_name)),
    ("ngroups_max", |number| value(number, 65536)),
    ("osrelease", |number| fact(number, || system::RELEASE.as_bytes().to_vec())),
    ("ostype", |number| fact(number, || system::SYSTEM.as_bytes().to_vec())),
    ("overflowgid", |number| value(number, 65534)),
    ("overflowuid", |number| value(number, 65534)),
    ("pid_max", |number| value(number, u64::from(PID_LIMIT.unsigned_abs()))),
    ("random", |number| directory(number, 3, RANDOM)),
    ("randomize_va_space", |number| value(number, 2)),
    ("threads-max", |number| value(number, table::thread_limit() as u64)),
    ("version", |number| fact(number, || system::VERSION.as_bytes().to_vec())),
];

const RANDOM: &[(&str, MakeEntry)] = &[
    ("boot_id", |number| fact(number, || system::boot_id().to_vec())),
    ("entropy_avail", |number| value(number, 256)),
    ("poolsize", |number| value(number, 256)),
    ("uuid", |number| fact(number, || system::random_uuid().to_vec())),
];

const MEMORY: &[(&str, MakeEntry)] = &[
    ("max_map_count", |number| value(number, crate::memory::MOST_AREAS as u64)),
    ("mmap_min_addr", |number| value(number, 65536)),
    ("overcommit_memory", |number| value(number, 1)),
    ("swappiness", |number| value(number, 0)),
];
