//! Files of `/proc` that tell of the whole system.

use alloc::vec::Vec;

use abi::Errno;
use abi::fs::{device_major, device_minor};
use abi::process::TICKS_PER_SECOND;
use base::memory::frame_counts;
use hal::{Contract, Machine, PAGE_SIZE};

use super::{Text, put};
use crate::machine;
use crate::process::system::{self as facts, RELEASE, SYSTEM, VERSION};
use crate::process::table;

type Generated = Result<Vec<u8>, Errno>;

const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_TICK: u64 = NS_PER_SECOND / TICKS_PER_SECOND;
const KIB_PER_PAGE: u64 = PAGE_SIZE as u64 / 1024;

/// Cores that programs run on, with their numbers.
fn application_cores() -> Vec<usize> {
    machine::layout().application.iter().collect()
}

pub(super) fn command_line() -> Generated {
    let mut text = Text::default();
    put!(text, "{}\n", Machine::boot_info().command_line);
    Ok(text.0)
}

pub(super) fn version() -> Generated {
    let mut text = Text::default();
    put!(text, "{SYSTEM} version {RELEASE} (Ferry) {VERSION}\n");
    Ok(text.0)
}

/// What is the same for all processors is all that is told: the machine's own description is not
/// asked for.
pub(super) fn processors() -> Generated {
    let mut text = Text::default();
    let kilohertz = Machine::cycles_per_second() / 1000;
    let cores = application_cores();
    for core in &cores {
        put!(text, "processor\t: {core}\nvendor_id\t: Ferry\ncpu family\t: 6\nmodel\t\t: 0\n");
        put!(text, "model name\t: {} processor\n", Machine::NAME);
        put!(text, "cpu MHz\t\t: {}.{:03}\n", kilohertz / 1000, kilohertz % 1000);
        put!(text, "physical id\t: 0\nsiblings\t: {0}\ncore id\t\t: {core}\n", cores.len());
        put!(text, "cpu cores\t: {}\nfpu\t\t: yes\n", cores.len());
        put!(text, "flags\t\t: fpu tsc msr pae cx8 apic sep cmov fxsr sse sse2 syscall nx lm\n\n");
    }
    Ok(text.0)
}

pub(super) fn file_systems() -> Generated {
    let mut text = Text::default();
    for name in facts::FILE_SYSTEMS {
        put!(text, "nodev\t{name}\n");
    }
    put!(text, "\text4\n");
    Ok(text.0)
}

/// `/proc/partitions`: numbers, blocks of 1,024 bytes and name of each disk and partition that has a size.
pub(super) fn partitions() -> Generated {
    let mut text = Text::default();
    put!(text, "major minor  #blocks  name\n\n");
    for disk in fs::block::devices().into_iter().filter(|disk| disk.size() > 0) {
        let (number, blocks) = (disk.number(), disk.size() / 1024);
        let (major, minor) = (device_major(number), device_minor(number));
        put!(text, "{major:4}  {minor:7} {blocks:10} {}\n", disk.name());
    }
    Ok(text.0)
}

/// What there is none of.
pub(super) fn nothing() -> Generated {
    Ok(Vec::new())
}

pub(super) fn control_groups() -> Generated {
    Ok(b"#subsys_name\thierarchy\tnum_cgroups\tenabled\n".to_vec())
}

pub(super) fn swaps() -> Generated {
    Ok(b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n".to_vec())
}

/// The drivers by major number.
pub(super) fn devices() -> Generated {
    let characters = [(1, "mem"), (5, "/dev/tty"), (5, "/dev/console"), (5, "/dev/ptmx")];
    let mut text = Text::default();
    put!(text, "Character devices:\n");
    for (major, name) in characters.into_iter().chain([(128, "ptm"), (136, "pts")]) {
        put!(text, "{major:3} {name}\n");
    }
    put!(text, " 10 misc\n\nBlock devices:\n  7 loop\n254 virtblk\n259 blkext\n");
    Ok(text.0)
}

/// Advisory locks of all files.
pub(super) fn locks() -> Generated {
    let mut text = Text::default();
    for (number, line) in (1..).zip(fs::lock::list()) {
        let kind = if line.is_shared { "READ " } else { "WRITE" };
        let (major, minor) = (device_major(line.inode.device), device_minor(line.inode.device));
        put!(text, "{number}: {:6} ADVISORY  {kind} {} ", line.class, line.process);
        put!(text, "{major:02x}:{minor:02x}:{} {} ", line.inode.number, line.start);
        match line.last {
            Some(last) => put!(text, "{last}\n"),
            None => put!(text, "EOF\n"),
        }
    }
    Ok(text.0)
}

/// The counters of memory that are kept; the rest are zero.
pub(super) fn memory_counters() -> Generated {
    let mut text = Text::default();
    let frames = frame_counts();
    let shared = fs::tmpfs::page_count();
    let used = (frames.total - frames.free) as u64;
    let cached = fs::inode::cached();
    let counters = [
        ("nr_free_pages", frames.free as u64),
        ("nr_anon_pages", used.saturating_sub(shared + cached.pages)),
        ("nr_mapped", 0),
        ("nr_file_pages", shared + cached.pages),
        ("nr_dirty", cached.dirty),
        ("nr_writeback", cached.writeback),
        ("nr_shmem", shared),
        ("pgpgin", 0),
        ("pgpgout", 0),
        ("pswpin", 0),
        ("pswpout", 0),
        ("pgfault", 0),
        ("pgmajfault", 0),
        ("oom_kill", 0),
    ];
    for (name, count) in counters {
        put!(text, "{name} {count}\n");
    }
    Ok(text.0)
}

/// Interrupts are not counted; the heading says which cores there are.
pub(super) fn interrupts() -> Generated {
    let mut text = Text::default();
    put!(text, "     ");
    for core in application_cores() {
        put!(text, "       CPU{core}");
    }
    put!(text, "\n");
    Ok(text.0)
}

pub(super) fn load() -> Generated {
    let mut text = Text::default();
    for load in facts::load_averages() {
        // Rounded to the nearest hundredth, from 11 fraction bits.
        let hundredths = (load * 100 + (1 << 10)) >> 11;
        put!(text, "{}.{:02} ", hundredths / 100, hundredths % 100);
    }
    let counts = table::counts();
    put!(text, "{}/{} {}\n", running(), counts.threads, table::last_number());
    Ok(text.0)
}

fn running() -> usize {
    let mut count = 0;
    for process in table::processes() {
        process.for_each_thread(|thread| count += usize::from(!thread.is_waiting()));
    }
    count
}

pub(super) fn memory() -> Generated {
    let mut text = Text::default();
    let frames = frame_counts();
    let (total, free) = (frames.total as u64 * KIB_PER_PAGE, frames.free as u64 * KIB_PER_PAGE);
    let available = crate::memory::available_frames() as u64 * KIB_PER_PAGE;
    let shared = fs::tmpfs::page_count() * KIB_PER_PAGE;
    let cached = fs::inode::cached();
    let kept = shared + cached.pages * KIB_PER_PAGE;
    let own = total.saturating_sub(free).saturating_sub(kept);
    let lines = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", available.min(free)),
        ("Buffers", 0),
        ("Cached", shared + cached.pages * KIB_PER_PAGE),
        ("SwapCached", 0),
        ("Active", own),
        ("Inactive", shared + cached.pages * KIB_PER_PAGE),
        ("Active(anon)", own),
        ("Inactive(anon)", shared),
        ("Active(file)", 0),
        ("Inactive(file)", cached.pages * KIB_PER_PAGE),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", cached.dirty * KIB_PER_PAGE),
        ("Writeback", cached.writeback * KIB_PER_PAGE),
        ("AnonPages", own),
        ("Mapped", 0),
        ("Shmem", shared),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("PageTables", 0),
        ("CommitLimit", total),
        ("Committed_AS", total.saturating_sub(free)),
    ];
    for (name, kib) in lines {
        put!(text, "{name}:{kib:>0$} kB\n", 24_usize.saturating_sub(name.len() + 1).max(1));
    }
    Ok(text.0)
}

pub(super) fn uptime() -> Generated {
    let mut text = Text::default();
    let now_ns = base::time::now_ns();
    let [user_ns, system_ns] = facts::processor_time();
    let cores = application_cores().len() as u64;
    let idle_ns = (now_ns * cores).saturating_sub(user_ns + system_ns);
    for (span_ns, end) in [(now_ns, ' '), (idle_ns, '\n')] {
        let hundredths = span_ns / (NS_PER_SECOND / 100);
        put!(text, "{}.{:02}{end}", hundredths / 100, hundredths % 100);
    }
    Ok(text.0)
}

/// Time is counted for the system as a whole; the lines of single cores get equal parts of it.
pub(super) fn statistics() -> Generated {
    let mut text = Text::default();
    let now_ns = base::time::now_ns();
    let [user_ns, system_ns] = facts::processor_time();
    let cores = application_cores();
    let count = cores.len().max(1) as u64;
    let idle_ns = (now_ns * count).saturating_sub(user_ns + system_ns);
    let mut line = |name: &str, part: u64| {
        let [user, system, idle] =
            [user_ns, system_ns, idle_ns].map(|span_ns| span_ns / part / NS_PER_TICK);
        put!(text, "{name} {user} 0 {system} {idle} 0 0 0 0 0 0\n");
    };
    line("cpu ", 1);
    for core in &cores {
        line(&alloc::format!("cpu{core}"), count);
    }
    let boot_seconds = base::time::wall_ns().saturating_sub(now_ns) / NS_PER_SECOND;
    let counts = table::counts();
    put!(text, "intr 0\nctxt 0\nbtime {boot_seconds}\nprocesses {}\n", counts.created);
    put!(text, "procs_running {}\nprocs_blocked 0\nsoftirq 0\n", running());
    Ok(text.0)
}

/// What exists now, one line each: a test compares two such texts to find what was not given back.
pub(super) fn counts() -> Generated {
    let mut text = Text::default();
    let frames = frame_counts();
    let counts = table::counts();
    let mut tables: Vec<(u64, usize)> = Vec::new();
    for process in table::processes() {
        process.for_each_thread(|thread| {
            let files = thread.files();
            if !tables.iter().any(|(number, _)| *number == files.number()) {
                tables.push((files.number(), files.open_count()));
            }
        });
    }
    let descriptors: usize = tables.iter().map(|(_, open)| open).sum();
    put!(text, "frames_total {}\nframes_free {}\n", frames.total, frames.free);
    let tasks = base::task::task_counts();
    put!(text, "tasks {}\n", tasks.started.saturating_sub(tasks.ended));
    put!(text, "threads {}\nprocesses {}\n", counts.threads, counts.processes);
    put!(text, "zombies {}\nprocesses_created {}\n", counts.zombies, counts.created);
    put!(text, "file_tables {}\ndescriptors {descriptors}\n", tables.len());
    Ok(text.0)
}
