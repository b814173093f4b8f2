//! The root of `/proc`, and directories with a fixed list of names.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use fs::pseudo::{Directory, Entry, EntryNode, Listed};
use fs::{Identity, NodeKind};

use super::process::Subject;
use super::{
    configuration, counters, keys, machine, number, process, settings, system, sysvipc, tables,
};
use crate::process::table;

/// Makes an entry with the inode number given.
pub(super) type MakeEntry = fn(u64) -> Entry;

/// A directory whose names never change. Inode numbers count up from `first_number`.
pub(super) struct Fixed {
    pub(super) first_number: u64,
    pub(super) names: &'static [(&'static str, MakeEntry)],
}

/// Kind of an entry.
pub(super) fn kind(entry: &Entry) -> NodeKind {
    match entry.node {
        EntryNode::Directory(_) => NodeKind::Directory,
        EntryNode::File(_) => NodeKind::Regular,
        EntryNode::Link(_) => NodeKind::Symlink,
    }
}

impl Directory for Fixed {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let found =
            (self.first_number..).zip(self.names).find(|(_, (known, _))| known.as_bytes() == name);
        found.map(|(number, (_, make))| make(number)).ok_or(Errno::ENOENT)
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        for ((number, (name, make)), cursor) in (self.first_number..).zip(self.names).zip(1..) {
            let listed =
                Listed { name: name.as_bytes(), number, kind: kind(&make(number)), cursor };
            if cursor > after && !emit(listed) {
                break;
            }
        }
        Ok(())
    }
}

/// The root: the fixed files, then the processes.
pub(super) struct Root;

const FILES: Fixed = Fixed { first_number: number::SYSTEM, names: ROOT_NAMES };

/// Cursors of processes are their numbers plus this.
const PROCESS_CURSOR: u64 = 0x1000;

const ROOT_NAMES: &[(&str, MakeEntry)] = &[
    ("self", |number| {
        Entry::link(
            number,
            Arc::new(|identity: &Identity| own_number(identity.process).map(String::into_bytes)),
        )
    }),
    ("thread-self", |number| {
        Entry::link(
            number,
            Arc::new(|identity: &Identity| {
                let process = own_number(identity.process)?;
                Ok(format!("{process}/task/{}", identity.thread).into_bytes())
            }),
        )
    }),
    ("mounts", |number| Entry::link(number, Arc::new(|_: &Identity| Ok(b"self/mounts".to_vec())))),
    ("buddyinfo", |number| Entry::file(number, Arc::new(tables::free_blocks))),
    ("cgroups", |number| Entry::file(number, Arc::new(system::control_groups))),
    ("cmdline", |number| Entry::file(number, Arc::new(system::command_line))),
    ("config.gz", |number| Entry::file(number, Arc::new(configuration::packed))),
    ("consoles", |number| Entry::file(number, Arc::new(tables::consoles))),
    ("crypto", |number| Entry::file(number, Arc::new(system::nothing))),
    ("cpuinfo", |number| Entry::file(number, Arc::new(system::processors))),
    ("devices", |number| Entry::file(number, Arc::new(system::devices))),
    ("diskstats", |number| Entry::file(number, Arc::new(system::nothing))),
    ("dma", |number| Entry::file(number, Arc::new(|| Ok(b" 4: cascade\n".to_vec())))),
    ("driver", |number| {
        Entry::directory(number, Arc::new(Fixed { first_number: number + 0xa0, names: &[] }))
    }),
    ("execdomains", |number| Entry::file(number, Arc::new(tables::formats_of_programs))),
    ("filesystems", |number| Entry::file(number, Arc::new(system::file_systems))),
    ("iomem", |number| Entry::file(number, Arc::new(system::nothing))),
    ("ioports", |number| Entry::file(number, Arc::new(system::nothing))),
    ("interrupts", |number| Entry::file(number, Arc::new(system::interrupts))),
    ("loadavg", |number| Entry::file(number, Arc::new(system::load))),
    ("key-users", keys::users),
    ("kallsyms", |number| Entry::file(number, Arc::new(system::nothing))),
    ("keys", keys::list),
    ("locks", |number| Entry::file(number, Arc::new(system::locks))),
    ("misc", |number| Entry::file(number, Arc::new(system::nothing))),
    ("modules", |number| Entry::file(number, Arc::new(system::nothing))),
    ("pagetypeinfo", |number| {
        Entry::file(number, Arc::new(tables::kinds_of_pages)).with_mode(0o400)
    }),
    ("partitions", |number| Entry::file(number, Arc::new(system::partitions))),
    ("schedstat", |number| Entry::file(number, Arc::new(tables::run_queues))),
    ("slabinfo", |number| Entry::file(number, Arc::new(tables::caches)).with_mode(0o400)),
    ("softirqs", |number| Entry::file(number, Arc::new(tables::after_interrupts))),
    ("swaps", |number| Entry::file(number, Arc::new(system::swaps))),
    ("tty", |number| {
        let names: &[(&str, MakeEntry)] = &[
            ("drivers", |number| Entry::file(number, Arc::new(tables::terminal_drivers))),
            ("ldiscs", |number| Entry::file(number, Arc::new(|| Ok(b"n_tty       0\n".to_vec())))),
        ];
        Entry::directory(number, Arc::new(Fixed { first_number: number + 0x80, names }))
    }),
    ("vmallocinfo", |number| Entry::file(number, Arc::new(system::nothing)).with_mode(0o400)),
    ("vmstat", |number| Entry::file(number, Arc::new(system::memory_counters))),
    ("zoneinfo", |number| Entry::file(number, Arc::new(tables::zones))),
    ("meminfo", |number| Entry::file(number, Arc::new(system::memory))),
    ("stat", |number| Entry::file(number, Arc::new(system::statistics))),
    ("uptime", |number| Entry::file(number, Arc::new(system::uptime))),
    ("version", |number| Entry::file(number, Arc::new(system::version))),
    ("ferry", |number| {
        let names: &[(&str, MakeEntry)] = &[
            ("counts", |number| Entry::file(number, Arc::new(system::counts))),
            ("counters", |number| Entry::file(number, Arc::new(counters::cores))),
            ("stages", |number| Entry::file(number, Arc::new(counters::stamps))),
            ("servers", machine::servers),
            ("machine", |number| Entry::file(number, Arc::new(machine::measured))),
            ("polls", |number| Entry::file(number, Arc::new(counters::handler_polls))),
            #[cfg(debug_assertions)]
            ("panic", super::fault::entry),
            #[cfg(debug_assertions)]
            ("race", super::race::entry),
        ];
        Entry::directory(number, Arc::new(Fixed { first_number: number + 0x40, names }))
    }),
    ("net", |number| Entry::link(number, Arc::new(|_: &Identity| Ok(b"self/net".to_vec())))),
    ("sysvipc", sysvipc::directory),
    ("sys", |number| Entry::directory(number, Arc::new(settings::root()))),
];

fn own_number(process: i32) -> Result<String, Errno> {
    if process == 0 { Err(Errno::ENOENT) } else { Ok(process.to_string()) }
}

/// The number that a name spells, without sign and leading zeros.
pub(super) fn parse_number(name: &[u8]) -> Option<i32> {
    let text = core::str::from_utf8(name).ok()?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if is_plain || text == "0" { text.parse().ok() } else { None }
}

impl Directory for Root {
    fn lookup(&self, name: &[u8]) -> Result<Entry, Errno> {
        let Some(pid) = parse_number(name) else { return FILES.lookup(name) };
        // A number of any thread leads to its process, although only leaders are listed.
        let process = table::find_process(pid).ok_or(Errno::ENOENT)?;
        Ok(process::entry(Subject::of_process(&process)))
    }

    fn list(&self, after: u64, emit: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        let mut goes_on = true;
        if after < PROCESS_CURSOR {
            FILES.list(after, &mut |listed| {
                goes_on = emit(listed);
                goes_on
            })?;
        }
        if !goes_on {
            return Ok(());
        }
        let pids: Vec<i32> = table::processes().iter().map(|process| process.pid.0).collect();
        for pid in pids {
            let cursor = PROCESS_CURSOR + u64::from(pid.unsigned_abs());
            let name = pid.to_string();
            let listed = Listed {
                name: name.as_bytes(),
                number: number::of_process(pid, 0),
                kind: NodeKind::Directory,
                cursor,
            };
            if cursor > after && !emit(listed) {
                break;
            }
        }
        Ok(())
    }

    fn links(&self) -> u64 {
        2 + table::counts().processes as u64
    }
}
