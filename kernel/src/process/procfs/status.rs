//! The longer texts about a process or thread.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker};

use abi::Errno;
use abi::process::{RLIM_INFINITY, RLIMIT_COUNT, TICKS_PER_SECOND};
use base::quota;
use fs::pseudo::Part;
use hal::PAGE_SIZE;

use super::process::Subject;
use super::{Text, put};
use crate::machine;
use crate::memory::{AddressSpace, UserMemory};
use crate::process::process::{TransferCounters, UsageSum};
use crate::process::thread::Resources;
use crate::process::{INIT, Process, Resource, Thread, session};

type Generated = Result<Vec<u8>, Errno>;

const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;
const KIB_PER_PAGE: u64 = PAGE_SIZE as u64 / 1024;
/// Most bytes of arguments or environment that are shown.
const STRINGS_LIMIT: u64 = 1 << 20;
/// `PF_FORKNOEXEC`, the one flag in the ninth field that is kept.
const FORKED_WITHOUT_EXEC: u32 = 0x40;

pub(super) fn control_group(subject: &Subject) -> Generated {
    subject.process().map(|_| b"0::/\n".to_vec())
}

/// `cpuset`: there is one set of processors.
pub(super) fn processor_set(subject: &Subject) -> Generated {
    subject.process().map(|_| b"/\n".to_vec())
}

pub(super) fn waiting_place(subject: &Subject) -> Generated {
    subject.process().map(|_| b"0".to_vec())
}

/// `io`: nothing reaches a device.
pub(super) fn transfers(subject: &Subject, may_look: bool) -> Generated {
    let process = subject.process()?;
    if !may_look {
        return Err(Errno::EACCES);
    }
    let sum = TransferCounters::default();
    if subject.is_thread() {
        sum.add(&subject.thread()?.transfers);
    } else {
        sum.add(&process.ended_transfers);
        process.for_each_thread(|thread| sum.add(&thread.transfers));
    }
    let [read_bytes, written_bytes, reads, writes] = sum.values();
    let mut text = Text::default();
    put!(text, "rchar: {read_bytes}\nwchar: {written_bytes}\nsyscr: {reads}\nsyscw: {writes}\n");
    put!(text, "read_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n");
    Ok(text.0)
}

/// `task/TID/children`: children belong to the process, so they are shown with its first thread.
pub(super) fn children(subject: &Subject) -> Generated {
    let process = subject.process()?;
    let mut text = Text::default();
    if subject.number() == process.pid.0 {
        for child in session::children_of(process.pid) {
            put!(text, "{child} ");
        }
    }
    Ok(text.0)
}

/// `syscall`: where a thread waits is not told.
pub(super) fn current_call(subject: &Subject, shows_addresses: bool) -> Generated {
    subject.process()?;
    subject.thread()?;
    if !shows_addresses {
        return Err(Errno::EPERM);
    }
    Ok(b"running\n".to_vec())
}

/// `timens_offsets`: of the only namespace of clocks.
pub(super) fn clock_offsets(subject: &Subject) -> Generated {
    subject
        .process()
        .map(|_| b"monotonic           0         0\nboottime            0         0\n".to_vec())
}

pub(super) fn personality(subject: &Subject) -> Generated {
    let mut text = Text::default();
    put!(text, "{:08x}\n", subject.process()?.personality.load(Ordering::Relaxed));
    Ok(text.0)
}

pub(super) fn timer_slack(subject: &Subject) -> Generated {
    let mut text = Text::default();
    put!(text, "{}\n", subject.thread()?.timer_slack_ns.load(Ordering::Relaxed));
    Ok(text.0)
}

/// `sched`: how the thread is scheduled, as far as Linux's fields have a meaning here.
pub(super) fn schedule(subject: &Subject) -> Generated {
    let process = subject.process()?;
    let thread = subject.thread()?;
    let own = usage(subject, &process);
    let milliseconds = |ns: u64| (ns / 1_000_000, ns % 1_000_000);
    let mut text = Text::default();
    text.bytes(&name(subject));
    put!(text, " ({}, #threads: {})\n", subject.number(), process.thread_count());
    text.bytes(&[b'-'; 67]);
    text.bytes(b"\n");
    let used = milliseconds(own.user_ns + own.system_ns);
    let started = milliseconds(thread.start_ns);
    for (field, (whole, part)) in [("se.exec_start", started), ("se.sum_exec_runtime", used)] {
        put!(text, "{field:<45}:{whole:>14}.{part:06}\n");
    }
    let switches = own.voluntary_switches + own.involuntary_switches;
    let (policy, nice) = (thread.schedule.policy(), thread.schedule.nice());
    // As Linux counts: 120 is a nice value of 0, and real-time priorities come before 100.
    let priority = match thread.schedule.priority() {
        0 => i64::from(120 + nice),
        real_time => i64::from(99 - real_time),
    };
    let counts = [
        ("nr_switches", switches.cast_signed()),
        ("nr_voluntary_switches", own.voluntary_switches.cast_signed()),
        ("nr_involuntary_switches", own.involuntary_switches.cast_signed()),
        ("policy", i64::from(policy)),
        ("prio", priority),
    ];
    for (field, value) in counts {
        put!(text, "{field:<45}:{value:>21}\n");
    }
    Ok(text.0)
}

/// `schedstat`: time on processors, time that it waited for one (not kept), and switches.
pub(super) fn schedule_statistics(subject: &Subject) -> Generated {
    let process = subject.process()?;
    let own = usage(subject, &process);
    let mut text = Text::default();
    let switches = own.voluntary_switches + own.involuntary_switches;
    put!(text, "{} 0 {switches}\n", own.user_ns + own.system_ns);
    Ok(text.0)
}

/// `uid_map` and `gid_map` of the one user namespace.
pub(super) fn identity_map(subject: &Subject) -> Generated {
    subject.process()?;
    Ok(b"         0          0 4294967295\n".to_vec())
}

pub(super) fn may_set_groups(subject: &Subject) -> Generated {
    subject.process().map(|_| b"allow\n".to_vec())
}

/// `loginuid` and `sessionid`: nobody logs in.
pub(super) fn no_login(subject: &Subject) -> Generated {
    subject.process().map(|_| b"4294967295".to_vec())
}

/// `autogroup`: the group of a session; sessions are not scheduled as groups.
pub(super) fn automatic_group(subject: &Subject) -> Generated {
    let mut text = Text::default();
    put!(text, "/autogroup-{} nice 0\n", subject.process()?.session());
    Ok(text.0)
}

/// `stack`: threads have none in the kernel.
pub(super) fn no_stack(_: &Resources, _: u64) -> Result<Part, Errno> {
    Ok(Part { text: Vec::new(), next: None })
}

/// `coredump_filter`: what would be written.
pub(super) fn dump_filter(subject: &Subject) -> Generated {
    subject.process().map(|_| b"00000033\n".to_vec())
}

pub(super) fn kill_score(subject: &Subject) -> Generated {
    let process = subject.process()?;
    let mut text = Text::default();
    let resident = match subject.thread() {
        Ok(thread) => thread.space().counters().resident,
        Err(_) => 0,
    };
    let total = base::memory::frame_counts().total.max(1) as u64;
    let share = i64::try_from(resident * 1000 / total).unwrap_or(1000);
    let preference = i64::from(process.kill_preference.load(Ordering::Relaxed));
    put!(text, "{}\n", (share + preference).clamp(0, 2000));
    Ok(text.0)
}

/// The name without padding; a process that has ended is named after its program.
pub(super) fn name(subject: &Subject) -> Vec<u8> {
    let name = match subject.thread() {
        Ok(thread) => thread.name(),
        Err(_) => subject.process().map_or([0; 16], |process| process.last_name()),
    };
    name.iter().copied().take_while(|byte| *byte != 0).collect()
}

/// `R`, `S`, `T`, `t` or `Z`. A thread that has work to do or is in user mode runs.
fn state(process: &Process, thread: Option<&Arc<Thread>>) -> (char, &'static str) {
    match thread {
        None => ('Z', "zombie"),
        // It runs no program.
        Some(_) if process.pid == INIT => ('S', "sleeping"),
        Some(thread) if thread.tracing.is_stopped() => ('t', "tracing stop"),
        Some(_) if process.signals.is_stopped() => ('T', "stopped"),
        Some(thread) if thread.is_waiting() => ('S', "sleeping"),
        Some(_) => ('R', "running"),
    }
}

/// Reads the caller's view of another's memory, as far as it is there at once.
pub(super) fn read_memory(space: &Arc<AddressSpace>, range: core::ops::Range<u64>) -> Vec<u8> {
    let length = range.end.saturating_sub(range.start).min(STRINGS_LIMIT);
    let Ok(length) = usize::try_from(length) else { return Vec::new() };
    if length == 0 {
        return Vec::new();
    }
    let memory = UserMemory::new(space.clone());
    let mut reading = pin!(memory.read_vector(range.start, length));
    match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(bytes)) => bytes,
        _ => Vec::new(),
    }
}

pub(super) fn command_line(subject: &Subject) -> Generated {
    subject.process()?;
    Ok(subject.thread().map_or(Vec::new(), |thread| {
        let space = thread.space();
        read_memory(&space, space.regions().arguments)
    }))
}

pub(super) fn environment(inside: &Resources, _: u64) -> Result<Part, Errno> {
    let text = read_memory(&inside.space, inside.space.regions().environment);
    Ok(Part { text, next: None })
}

/// A part of `maps`.
pub(super) fn maps(inside: &Resources, cursor: u64) -> Result<Part, Errno> {
    let mut text = Vec::new();
    let next = inside.space.maps(cursor, &mut text)?;
    Ok(Part { text, next })
}

pub(super) fn memory_sizes(subject: &Subject) -> Generated {
    subject.process()?;
    let mut text = Text::default();
    let counters = subject.thread().map(|thread| thread.space().counters()).unwrap_or_default();
    put!(
        text,
        "{} {} {} {} 0 {} 0\n",
        counters.total,
        counters.resident,
        counters.resident_shared,
        counters.text,
        counters.data + counters.stack
    );
    Ok(text.0)
}

/// Time and faults of the process, or of the one thread that the file is about.
fn usage(subject: &Subject, process: &Process) -> UsageSum {
    match subject.thread() {
        Ok(thread) if subject.is_thread() => thread.usage(),
        _ => process.usage(),
    }
}

/// `shows_addresses`: the reader may look into the process, so it learns where its parts lie.
pub(super) fn stat(subject: &Subject, shows_addresses: bool) -> Generated {
    let process = subject.process()?;
    let thread = subject.thread().ok();
    let mut text = Text::default();
    put!(text, "{} (", subject.number());
    text.bytes(&name(subject));
    let (letter, _) = state(&process, thread.as_ref());
    let terminal = session::terminal_of(process.session());
    let (device, foreground) = terminal.as_ref().map_or((0, -1), |terminal| {
        let foreground = terminal.foreground();
        (terminal.device(), if foreground == 0 { -1 } else { foreground })
    });
    put!(
        text,
        ") {letter} {} {} {} {device} {foreground} ",
        process.parent_pid(),
        process.group(),
        process.session()
    );
    let own = usage(subject, &process);
    let children = process.ended_children.get();
    let flags = if process.has_executed.load(Ordering::Relaxed) { 0 } else { FORKED_WITHOUT_EXEC };
    put!(text, "{flags} {} {} 0 0 ", own.faults, children.faults);
    put!(text, "{} {} ", own.user_ticks(), own.system_ticks());
    put!(text, "{} {} ", children.user_ticks(), children.system_ticks());
    let nice = thread.as_ref().map_or(0, |thread| thread.schedule.nice());
    let real_time = thread.as_ref().map_or(0, |thread| thread.schedule.priority());
    let priority = if real_time > 0 { -1 - real_time } else { 20 + nice };
    let start_ns = thread.as_ref().map_or(process.start_ns, |thread| thread.start_ns);
    put!(text, "{priority} {nice} {} 0 {} ", process.thread_count(), start_ns / NS_PER_TICK);
    memory_fields(&mut text, &process, thread.as_ref(), shows_addresses);
    signal_fields(&mut text, &process, thread.as_ref());
    let exit_signal = process.exit_signal.load(Ordering::Relaxed);
    let core = thread.as_ref().map_or(0, |thread| thread.core.load(Ordering::Relaxed));
    let policy = thread.as_ref().map_or(0, |thread| thread.schedule.policy());
    put!(text, "0 0 0 {exit_signal} {core} {real_time} {policy} 0 0 0 ");
    last_fields(&mut text, &process, thread.as_ref().filter(|_| shows_addresses));
    Ok(text.0)
}

/// Fields 23 to 30: sizes and where the program lies.
fn memory_fields(
    text: &mut Text,
    process: &Process,
    thread: Option<&Arc<Thread>>,
    shows_addresses: bool,
) {
    let limit = process.limits.soft(Resource::Resident);
    let Some(thread) = thread else {
        put!(*text, "0 0 {limit} 0 0 0 0 0 ");
        return;
    };
    let space = thread.space();
    let (counters, regions) = (space.counters(), space.regions());
    put!(*text, "{} {} {limit} ", counters.total * PAGE_SIZE as u64, counters.resident);
    let code = regions.code;
    match shows_addresses {
        true => put!(*text, "{} {} {} 0 0 ", code.start, code.end, regions.stack_start),
        // That there is a program is no secret.
        false => put!(*text, "1 1 0 0 0 "),
    }
}

/// Fields 31 to 34: signals, of which only the first 31 fit.
fn signal_fields(text: &mut Text, process: &Process, thread: Option<&Arc<Thread>>) {
    let (pending, blocked) =
        thread.map_or((0, 0), |thread| (thread.signals.pending().0, thread.signals.blocked().0));
    let (ignored, caught) = process.signals.actions().ignored_and_caught();
    for set in [pending, blocked, ignored.0, caught.0] {
        put!(*text, "{} ", set & 0x7fff_ffff);
    }
}

/// Fields 45 to 52.
fn last_fields(text: &mut Text, process: &Process, thread: Option<&Arc<Thread>>) {
    let status = process.exit_status().unwrap_or(0);
    match thread {
        None => put!(*text, "0 0 0 0 0 0 0 {status}\n"),
        Some(thread) => {
            let space = thread.space();
            let regions = space.regions();
            put!(*text, "{} {} ", regions.data.start, regions.data.end);
            put!(*text, "{} ", space.heap().start);
            put!(*text, "{} {} ", regions.arguments.start, regions.arguments.end);
            put!(*text, "{} {} ", regions.environment.start, regions.environment.end);
            put!(*text, "{status}\n");
        }
    }
}

pub(super) fn status(subject: &Subject) -> Generated {
    let process = subject.process()?;
    let thread = subject.thread().ok();
    let mut text = Text::default();
    text.bytes(b"Name:\t");
    // A process chooses its name: it must not make lines of its own.
    for byte in name(subject) {
        match byte {
            b'\n' => text.bytes(b"\\n"),
            b'\\' => text.bytes(b"\\\\"),
            _ => text.bytes(&[byte]),
        }
    }
    text.bytes(b"\n");
    if let Some(thread) = &thread {
        put!(text, "Umask:\t{:04o}\n", thread.directory().umask());
    }
    let (letter, word) = state(&process, thread.as_ref());
    put!(text, "State:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\n", process.pid);
    put!(text, "Pid:\t{}\nPPid:\t{}\n", subject.number(), process.parent_pid());
    let tracer = thread.as_ref().map_or(0, |thread| thread.tracing.tracer());
    put!(text, "TracerPid:\t{tracer}\n");
    if let Some(thread) = &thread {
        identity_lines(&mut text, thread);
    }
    put!(text, "NStgid:\t{}\nNSpid:\t{}\n", process.pid, subject.number());
    put!(text, "NSpgid:\t{}\nNSsid:\t{}\n", process.group(), process.session());
    if let Some(thread) = &thread {
        memory_lines(&mut text, thread);
    }
    let threads = process.thread_count().max(usize::from(process.pid == INIT));
    put!(text, "Threads:\t{threads}\n");
    signal_lines(&mut text, &process, thread.as_ref());
    if let Some(thread) = &thread {
        privilege_lines(&mut text, thread);
        let cores = machine::layout().application.0 & thread.affinity.load(Ordering::Relaxed);
        put!(text, "Cpus_allowed:\t{cores:x}\nCpus_allowed_list:\t");
        core_ranges(&mut text, cores);
        put!(text, "Mems_allowed:\t1\nMems_allowed_list:\t0\n");
    }
    let own = usage(subject, &process);
    put!(text, "voluntary_ctxt_switches:\t{}\n", own.voluntary_switches);
    put!(text, "nonvoluntary_ctxt_switches:\t{}\n", own.involuntary_switches);
    Ok(text.0)
}

/// A set of cores as `0-2,5`.
fn core_ranges(text: &mut Text, cores: u64) {
    let has = |core: u32| core < 64 && cores >> core & 1 != 0;
    let mut separator = "";
    let mut core = 0;
    while core < 64 {
        if has(core) {
            let first = core;
            while has(core + 1) {
                core += 1;
            }
            if first == core {
                put!(*text, "{separator}{first}");
            } else {
                put!(*text, "{separator}{first}-{core}");
            }
            separator = ",";
        }
        core += 1;
    }
    put!(*text, "\n");
}

fn identity_lines(text: &mut Text, thread: &Thread) {
    let credentials = thread.credentials();
    for (label, ids) in [("Uid", &credentials.user), ("Gid", &credentials.group)] {
        put!(*text, "{label}:\t{}\t{}\t{}\t{}\n", ids.real, ids.effective, ids.saved, ids.file);
    }
    put!(*text, "FDSize:\t{}\nGroups:\t", thread.files().capacity());
    for group in credentials.groups.iter() {
        put!(*text, "{group} ");
    }
    put!(*text, "\n");
}

fn memory_lines(text: &mut Text, thread: &Thread) {
    let counters = thread.space().counters();
    let anonymous = counters.resident.saturating_sub(counters.resident_shared);
    let lines = [
        ("VmPeak", counters.total_peak),
        ("VmSize", counters.total),
        ("VmLck", counters.locked),
        ("VmPin", 0),
        ("VmHWM", counters.resident_peak),
        ("VmRSS", counters.resident),
        ("RssAnon", anonymous),
        ("RssFile", 0),
        ("RssShmem", counters.resident_shared),
        ("VmData", counters.data),
        ("VmStk", counters.stack),
        ("VmExe", counters.text),
        ("VmLib", 0),
        ("VmPTE", counters.tables),
        ("VmSwap", 0),
    ];
    for (label, pages) in lines {
        put!(*text, "{label}:\t{:>8} kB\n", pages * KIB_PER_PAGE);
    }
}

fn signal_lines(text: &mut Text, process: &Process, thread: Option<&Arc<Thread>>) {
    let (pending, blocked) =
        thread.map_or((0, 0), |thread| (thread.signals.pending().0, thread.signals.blocked().0));
    let (ignored, caught) = process.signals.actions().ignored_and_caught();
    let shared = process.signals.pending().0;
    let user = thread.map(|thread| thread.credentials().user.real);
    let queued = user.map_or(0, |user| quota::held(user, quota::Kind::PendingSignals));
    put!(*text, "SigQ:\t{queued}/{}\n", process.pending_signal_limit());
    let sets = [
        ("SigPnd", pending),
        ("ShdPnd", shared),
        ("SigBlk", blocked),
        ("SigIgn", ignored.0),
        ("SigCgt", caught.0),
    ];
    for (label, set) in sets {
        put!(*text, "{label}:\t{set:016x}\n");
    }
}

fn privilege_lines(text: &mut Text, thread: &Thread) {
    let credentials = thread.credentials();
    let sets = &credentials.capabilities;
    let lines = [
        ("CapInh", sets.inheritable),
        ("CapPrm", sets.permitted),
        ("CapEff", sets.effective),
        ("CapBnd", sets.bounding),
        ("CapAmb", sets.ambient),
    ];
    for (label, set) in lines {
        put!(*text, "{label}:\t{set:016x}\n");
    }
    put!(*text, "NoNewPrivs:\t{}\n", u8::from(credentials.no_new_privileges));
    let restrictions = &thread.restrictions;
    let (mode, filters) = (restrictions.mode(), restrictions.filter_count());
    put!(*text, "Seccomp:\t{mode}\nSeccomp_filters:\t{filters}\n");
}

/// Names and units of the limits, in the order of their numbers.
const LIMIT_NAMES: [(&str, &str); RLIMIT_COUNT] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

pub(super) fn limits(subject: &Subject) -> Generated {
    let process = subject.process()?;
    let mut text = Text::default();
    let heading = ["Limit", "Soft Limit", "Hard Limit", "Units"];
    put!(text, "{:<25} {:<20} {:<20} {:<10}\n", heading[0], heading[1], heading[2], heading[3]);
    for (number, (name, unit)) in (0..).zip(LIMIT_NAMES) {
        let Ok(resource) = Resource::new(number) else { continue };
        let limit = process.limits.get(resource);
        put!(text, "{name:<25} ");
        for value in [limit.soft, limit.hard] {
            match value {
                RLIM_INFINITY => put!(text, "{:<20} ", "unlimited"),
                value => put!(text, "{value:<20} "),
            }
        }
        put!(text, "{unit:<10}\n");
    }
    Ok(text.0)
}

/// Adds a path with what would break the line written as octal numbers.
fn escaped(text: &mut Text, path: &[u8]) {
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => put!(*text, "\\{byte:03o}"),
            byte => text.bytes(&[*byte]),
        }
    }
}

pub(super) fn mounts(subject: &Subject) -> Generated {
    let root = subject.thread()?.directory().root();
    let mut text = Text::default();
    for mount in fs::mount::list(&root) {
        escaped(&mut text, mount.source.as_bytes());
        text.bytes(b" ");
        escaped(&mut text, &mount.path);
        put!(text, " {} {} 0 0\n", mount.type_name, mount.options);
    }
    Ok(text.0)
}

pub(super) fn mount_statistics(subject: &Subject) -> Generated {
    let root = subject.thread()?.directory().root();
    let mut text = Text::default();
    for mount in fs::mount::list(&root) {
        text.bytes(b"device ");
        escaped(&mut text, mount.source.as_bytes());
        text.bytes(b" mounted on ");
        escaped(&mut text, &mount.path);
        put!(text, " with fstype {}\n", mount.type_name);
    }
    Ok(text.0)
}

pub(super) fn mount_information(subject: &Subject) -> Generated {
    let root = subject.thread()?.directory().root();
    let mut text = Text::default();
    for mount in fs::mount::list(&root) {
        let major = abi::fs::device_major(mount.device);
        let minor = abi::fs::device_minor(mount.device);
        put!(text, "{} {} {major}:{minor} ", mount.id, mount.parent);
        escaped(&mut text, &mount.root);
        text.bytes(b" ");
        escaped(&mut text, &mount.path);
        put!(text, " {} - {} ", mount.options, mount.type_name);
        escaped(&mut text, mount.source.as_bytes());
        put!(text, " {}\n", mount.options);
    }
    Ok(text.0)
}
