//! `/proc/sys`: settings that programs look at and change.
//!
//! A row of a table is a name and what makes its entry: a fact, a limit that something here obeys
//! (`limit`), or a number that is checked and kept for those who look at it, and means nothing (`kept!`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::process::NAME_LENGTH;
use base::sync::{Mutex, rank};
use fs::notify::{LIMITS, fanotify};
use fs::protected;
use fs::pseudo::{Content, Entry};
use fs::remote::dirty;
use fs::{Identity, lease};

use hal::PAGE_SIZE;

use super::directory::{Fixed, MakeEntry};
use super::{Text, network, number, put, sysvipc};
use crate::call;
use crate::process::credentials::LAST_CAPABILITY;
use crate::process::dump;
use crate::process::file_table::DESCRIPTOR_LIMIT;
use crate::process::ids::PID_LIMIT;
use crate::process::keys;
use crate::process::namespace::{self, HostNames};
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

/// A setting that is a number and cannot be changed.
pub(super) fn value(number: u64, value: u64) -> Entry {
    fact(number, move || {
        let mut text = Text::default();
        put!(text, "{value}");
        text.0
    })
}

/// The host name or the domain name.
struct Name {
    get: fn(&HostNames) -> Vec<u8>,
    set: fn(&HostNames, &[u8]),
}

impl Content for Name {
    fn generate(&self, reader: &Identity) -> Result<Vec<u8>, Errno> {
        let names = namespace::names_of(reader.thread).ok_or(Errno::EAGAIN)?;
        let mut name = (self.get)(&names);
        name.push(b'\n');
        Ok(name)
    }

    fn write(&self, writer: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if offset == 0 {
            let names = namespace::names_of(writer.thread).ok_or(Errno::EAGAIN)?;
            let end = bytes.iter().position(|byte| matches!(byte, 0 | b'\n'));
            let name = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            (self.set)(&names, name.get(..NAME_LENGTH - 1).unwrap_or(name));
        }
        Ok(bytes.len())
    }
}

fn name(number: u64, get: fn(&HostNames) -> Vec<u8>, set: fn(&HostNames, &[u8])) -> Entry {
    Entry::file(number, Arc::new(Name { get, set })).with_mode(0o644)
}

/// A number that can be written within bounds.
struct Number {
    value: &'static AtomicU64,
    least: i64,
    most: i64,
    /// Makes the number that is kept of the one that is written.
    adjust: fn(u64) -> u64,
}

/// The number that a text begins with, in decimal, octal (`0`) or hexadecimal (`0x`); `EINVAL` when there
/// is none, or something other than a blank follows.
fn parse(bytes: &[u8]) -> Result<i64, Errno> {
    let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    let text = text.trim_matches([' ', '\t', '\n', '\0']);
    let word = text.split([' ', '\t', '\n']).next().unwrap_or_default();
    let (digits, is_negative) = word.strip_prefix('-').map_or((word, false), |rest| (rest, true));
    let parsed = if let Some(digits) = digits.strip_prefix("0x") {
        i64::from_str_radix(digits, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(digits, 8)
    } else {
        digits.parse()
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let number = parsed.ok().filter(|_| is_plain).ok_or(Errno::EINVAL)?;
    Ok(if is_negative { -number } else { number })
}

impl Content for Number {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        put!(text, "{}\n", self.value.load(Ordering::Relaxed).cast_signed());
        Ok(text.0)
    }

    fn write(&self, _: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        // As on Linux, only a write at the beginning sets anything.
        if offset == 0 {
            let number = parse(bytes)?;
            if !(self.least..=self.most).contains(&number) {
                return Err(Errno::EINVAL);
            }
            self.value.store((self.adjust)(number.cast_unsigned()), Ordering::Relaxed);
        }
        Ok(bytes.len())
    }
}

/// A number within bounds that something obeys.
fn limit(number: u64, value: &'static AtomicU64, least: i64, most: i64) -> Entry {
    limit_with(number, value, least, most, |number| number)
}

/// The same, with something to be done when it is set.
fn limit_with(
    number: u64,
    value: &'static AtomicU64,
    least: i64,
    most: i64,
    adjust: fn(u64) -> u64,
) -> Entry {
    Entry::file(number, Arc::new(Number { value, least, most, adjust })).with_mode(0o644)
}

/// A number that is set instead of another one.
fn instead_of(other: &AtomicU64, number: u64) -> u64 {
    other.store(0, Ordering::Relaxed);
    number
}

/// With bit 0, what is cached of files and is elsewhere too is dropped.
fn drop_caches(number: u64) -> u64 {
    if number & 1 != 0 {
        for file_system in fs::inode::to_be_synced() {
            file_system.drop_cached();
        }
    }
    number
}

/// A number within bounds that nothing here obeys.
macro_rules! kept {
    ($name:literal, $first:expr, $least:expr, $most:expr) => {
        ($name, |number| {
            static VALUE: AtomicU64 = AtomicU64::new(($first as i64).cast_unsigned());
            limit(number, &VALUE, $least, $most)
        })
    };
}

/// A text that can be written and that nothing here obeys.
struct KeptText {
    text: &'static Mutex<Option<Vec<u8>>>,
    first: &'static str,
}

/// Longest text that is kept.
const LONGEST_TEXT: usize = 127;

impl Content for KeptText {
    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = self.text.lock().clone().unwrap_or_else(|| self.first.as_bytes().to_vec());
        text.push(b'\n');
        Ok(text)
    }

    fn write(&self, _: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if offset == 0 {
            let line = bytes.split(|byte| matches!(byte, 0 | b'\n')).next().unwrap_or_default();
            *self.text.lock() = Some(line.get(..LONGEST_TEXT).unwrap_or(line).to_vec());
        }
        Ok(bytes.len())
    }
}

macro_rules! kept_text {
    ($name:literal, $first:literal) => {
        ($name, |number| {
            static TEXT: Mutex<Option<Vec<u8>>> = Mutex::new(&rank::SETTINGS, None);
            Entry::file(number, Arc::new(KeptText { text: &TEXT, first: $first })).with_mode(0o644)
        })
    };
}

/// A folder of settings; `place` is its own.
pub(super) fn directory(
    number: u64,
    place: u64,
    names: &'static [(&'static str, MakeEntry)],
) -> Entry {
    let first_number = number::SETTINGS + place * 0x100;
    Entry::directory(number, Arc::new(Fixed { first_number, names }))
}

/// `/proc/sys`
pub(super) fn root() -> Fixed {
    Fixed {
        first_number: number::SETTINGS,
        names: &[
            ("debug", |number| directory(number, 14, &[kept!("exception-trace", 1, 0, 1)])),
            ("dev", |number| directory(number, 15, DEVICES)),
            ("fs", |number| directory(number, 1, FILES)),
            ("kernel", |number| directory(number, 2, KERNEL)),
            ("net", |number| directory(number, 9, network::SETTINGS)),
            ("user", |number| directory(number, 17, USERS)),
            ("vm", |number| directory(number, 4, MEMORY)),
        ],
    }
}

const INT: i64 = i32::MAX as i64;
const UNSIGNED: i64 = u32::MAX as i64;

const FILES: &[(&str, MakeEntry)] = &[
    ("aio-max-nr", |number| limit(number, &system::MOST_REQUESTS, 0, i64::MAX)),
    ("aio-nr", |number| {
        fact(number, || {
            let mut text = Text::default();
            put!(text, "{}", system::REQUESTS.load(Ordering::Relaxed));
            text.0
        })
    }),
    ("dentry-state", |number| fact(number, || b"0\t0\t45\t0\t0\t0".to_vec())),
    kept!("dir-notify-enable", 1, 0, 1),
    ("epoll", |number| directory(number, 18, &[kept!("max_user_watches", 200_000, 0, i64::MAX)])),
    ("fanotify", |number| directory(number, 20, FANOTIFY)),
    ("file-max", |number| value(number, i64::MAX.unsigned_abs())),
    ("file-nr", |number| {
        fact(number, || {
            let mut text = Text::default();
            put!(text, "{}\t0\t{}", fs::file::open_count(), i64::MAX);
            text.0
        })
    }),
    ("inode-nr", |number| fact(number, || b"0\t0".to_vec())),
    ("inode-state", |number| fact(number, || b"0\t0\t0\t0\t0\t0\t0".to_vec())),
    ("inotify", |number| directory(number, 10, INOTIFY)),
    ("lease-break-time", |number| limit(number, &lease::BREAK_TIME_S, 0, INT)),
    ("leases-enable", |number| limit(number, &lease::ENABLED, 0, 1)),
    kept!("mount-max", 100_000, 1, UNSIGNED),
    ("mqueue", |number| directory(number, 5, sysvipc::MESSAGE_QUEUES)),
    ("nr_open", |number| value(number, DESCRIPTOR_LIMIT)),
    kept!("overflowgid", 65534, 0, 65535),
    kept!("overflowuid", 65534, 0, 65535),
    ("pipe-max-size", |number| {
        let (least, most) = (0, 1 << 31);
        let adjust = |size: u64| size.max(PAGE_SIZE as u64).next_power_of_two();
        let content = Number { value: &fs::pipe::MAX_SIZE, least, most, adjust };
        Entry::file(number, Arc::new(content)).with_mode(0o644)
    }),
    ("pipe-user-pages-hard", |number| value(number, 0)),
    ("pipe-user-pages-soft", |number| value(number, u64::from(fs::pipe::USER_PAGES_SOFT))),
    ("protected_fifos", |number| limit(number, &protected::FIFOS, 0, 2)),
    // Links to files of others are always restricted: see `fs::tree::link`.
    ("protected_hardlinks", |number| value(number, 1)),
    ("protected_regular", |number| limit(number, &protected::REGULAR, 0, 2)),
    ("protected_symlinks", |number| limit(number, &protected::SYMLINKS, 0, 1)),
    kept!("suid_dumpable", 0, 0, 2),
];

const FANOTIFY: &[(&str, MakeEntry)] = &[
    ("max_queued_events", |number| limit(number, &fanotify::LIMITS.queued_events, 0, INT)),
    ("max_user_groups", |number| limit(number, &fanotify::LIMITS.groups, 0, INT)),
    ("max_user_marks", |number| limit(number, &fanotify::LIMITS.marks, 0, INT)),
];

const INOTIFY: &[(&str, MakeEntry)] = &[
    ("max_queued_events", |number| limit(number, &LIMITS.queued_events, 0, INT)),
    ("max_user_instances", |number| limit(number, &LIMITS.instances, 0, INT)),
    ("max_user_watches", |number| limit(number, &LIMITS.watches, 0, INT)),
];

const KERNEL: &[(&str, MakeEntry)] = &[
    kept_text!("acct", "4\t2\t30"),
    ("arch", |number| fact(number, || b"x86_64".to_vec())),
    kept!("auto_msgmni", 0, 0, 1),
    ("bootloader_type", |number| value(number, 0)),
    ("bootloader_version", |number| value(number, 0)),
    ("cad_pid", |number| value(number, 1)),
    ("cap_last_cap", |number| value(number, u64::from(LAST_CAPABILITY))),
    ("core_pattern", |number| {
        let content = KeptText { text: &dump::PATTERN, first: dump::FIRST_PATTERN };
        Entry::file(number, Arc::new(content)).with_mode(0o644)
    }),
    kept!("core_pipe_limit", 0, 0, UNSIGNED),
    ("core_uses_pid", |number| limit(number, &dump::USES_PID, 0, 1)),
    kept!("ctrl-alt-del", 0, -INT - 1, INT),
    ("dmesg_restrict", |number| limit(number, &system::LOG_RESTRICTED, 0, 1)),
    ("domainname", |number| name(number, system::domain_name, system::set_domain_name)),
    ("hostname", |number| name(number, system::host_name, system::set_host_name)),
    kept!("hung_task_check_count", 4_194_304, 0, INT),
    kept!("hung_task_panic", 0, 0, 1),
    kept!("hung_task_timeout_secs", 120, 0, i64::MAX / 100),
    kept!("hung_task_warnings", 10, -1, INT),
    ("keys", |number| directory(number, 11, KEYS)),
    kept!("kptr_restrict", 0, 0, 2),
    kept!("max_lock_depth", 1024, -INT - 1, INT),
    ("msg_next_id", sysvipc::msg_next_id),
    ("msgmax", sysvipc::msgmax),
    ("msgmnb", sysvipc::msgmnb),
    ("msgmni", sysvipc::msgmni),
    kept!("modules_disabled", 0, 0, 1),
    ("ngroups_max", |number| value(number, 65536)),
    ("nmi_watchdog", |number| value(number, 0)),
    ("ns_last_pid", |number| {
        fact(number, || {
            let mut text = Text::default();
            put!(text, "{}", table::last_number());
            text.0
        })
    }),
    kept!("numa_balancing", 0, 0, 2),
    kept!("oops_all_cpu_backtrace", 0, 0, 1),
    kept!("oops_limit", 10_000, 0, UNSIGNED),
    ("osrelease", |number| fact(number, || system::RELEASE.as_bytes().to_vec())),
    ("ostype", |number| fact(number, || system::SYSTEM.as_bytes().to_vec())),
    kept!("overflowgid", 65534, 0, 65535),
    kept!("overflowuid", 65534, 0, 65535),
    kept!("panic", 0, -INT - 1, INT),
    kept!("panic_on_io_nmi", 0, -INT - 1, INT),
    kept!("panic_on_oops", 0, 0, INT),
    kept!("panic_on_rcu_stall", 0, 0, 1),
    kept!("panic_on_unrecovered_nmi", 0, -INT - 1, INT),
    kept!("panic_on_warn", 0, 0, 1),
    kept!("panic_print", 0, 0, i64::MAX),
    ("pending_calls_per_user", |number| value(number, u64::from(call::PENDING_CALLS_OF_A_USER))),
    kept!("perf_cpu_time_max_percent", 25, 0, 100),
    kept!("perf_event_max_contexts_per_stack", 8, 0, 1000),
    kept!("perf_event_max_sample_rate", 100_000, 1, INT),
    kept!("perf_event_max_stack", 127, 0, 640 * 1024),
    kept!("perf_event_mlock_kb", 516, -INT - 1, INT),
    kept!("perf_event_paranoid", 2, -1, INT),
    ("pid_max", |number| value(number, u64::from(PID_LIMIT.unsigned_abs()))),
    kept_text!("poweroff_cmd", "/sbin/poweroff"),
    kept!("print-fatal-signals", 0, -INT - 1, INT),
    kept_text!("printk", "4\t4\t1\t7"),
    kept!("printk_delay", 0, 0, 10_000),
    kept!("printk_ratelimit", 5, 0, INT),
    kept!("printk_ratelimit_burst", 10, 0, INT),
    ("pty", |number| directory(number, 12, TERMINALS)),
    ("random", |number| directory(number, 3, RANDOM)),
    kept!("randomize_va_space", 2, 0, 2),
    kept!("sched_autogroup_enabled", 0, 0, 1),
    kept!("sched_cfs_bandwidth_slice_us", 5000, 1, UNSIGNED),
    kept!("sched_child_runs_first", 0, 0, 1),
    kept!("sched_deadline_period_max_us", 4_194_304, 0, UNSIGNED),
    kept!("sched_deadline_period_min_us", 100, 0, UNSIGNED),
    kept!("sched_rr_timeslice_ms", 100, -INT - 1, INT),
    kept!("sched_rt_period_us", 1_000_000, 1, INT),
    kept!("sched_rt_runtime_us", 950_000, -1, INT),
    kept!("sched_schedstats", 0, 0, 1),
    ("seccomp", |number| directory(number, 13, RESTRICTIONS)),
    ("sem", sysvipc::sem),
    ("sem_next_id", sysvipc::sem_next_id),
    ("shm_next_id", sysvipc::shm_next_id),
    ("shm_rmid_forced", |number| value(number, 0)),
    ("shmall", sysvipc::shmall),
    ("shmmax", sysvipc::shmmax),
    ("shmmni", sysvipc::shmmni),
    kept!("soft_watchdog", 0, 0, 1),
    kept!("softlockup_panic", 0, 0, 1),
    kept!("sysctl_writes_strict", 1, -1, 1),
    kept!("sysrq", 0, 0, 511),
    kept!("tainted", 0, 0, i64::MAX),
    kept!("task_delayacct", 0, 0, 1),
    ("threads-max", |number| value(number, table::thread_limit() as u64)),
    kept!("timer_migration", 1, 0, 1),
    kept!("unknown_nmi_panic", 0, -INT - 1, INT),
    kept!("unprivileged_bpf_disabled", 2, 0, 2),
    kept!("unprivileged_userns_clone", 1, 0, 1),
    ("usermodehelper", |number| directory(number, 19, HELPERS)),
    ("version", |number| fact(number, || system::VERSION.as_bytes().to_vec())),
    kept!("warn_limit", 0, 0, UNSIGNED),
    kept!("watchdog", 0, 0, 1),
    kept!("watchdog_thresh", 10, 0, 60),
];

/// What `seccomp` can do with a call; what it logs is kept.
const RESTRICTIONS: &[(&str, MakeEntry)] = &[
    ("actions_avail", |number| {
        fact(number, || b"kill_process kill_thread trap errno trace log allow".to_vec())
    }),
    kept_text!("actions_logged", "kill_process kill_thread trap errno trace log"),
];

/// Memory needs no compaction: there are no huge pages.
static COMPACTION: AtomicU64 = AtomicU64::new(1);

const DEVICES: &[(&str, MakeEntry)] =
    &[("tty", |number| directory(number, 16, &[kept!("ldisc_autoload", 1, 0, 1)]))];

/// What programs may do that the kernel starts: it starts none.
const HELPERS: &[(&str, MakeEntry)] =
    &[kept_text!("bset", "4294967295\t511"), kept_text!("inheritable", "4294967295\t511")];

/// Most namespaces, and others of which a user may have so many; what is not named has no limit.
const USERS: &[(&str, MakeEntry)] = &[
    kept!("max_cgroup_namespaces", 15_000, 0, INT),
    ("max_fanotify_groups", |number| limit(number, &fanotify::LIMITS.groups, 0, INT)),
    ("max_fanotify_marks", |number| limit(number, &fanotify::LIMITS.marks, 0, INT)),
    ("max_inotify_instances", |number| limit(number, &LIMITS.instances, 0, INT)),
    ("max_inotify_watches", |number| limit(number, &LIMITS.watches, 0, INT)),
    kept!("max_ipc_namespaces", 15_000, 0, INT),
    kept!("max_mnt_namespaces", 15_000, 0, INT),
    kept!("max_net_namespaces", 15_000, 0, INT),
    kept!("max_pid_namespaces", 15_000, 0, INT),
    kept!("max_time_namespaces", 15_000, 0, INT),
    kept!("max_user_namespaces", 15_000, 0, INT),
    kept!("max_uts_namespaces", 15_000, 0, INT),
];

const TERMINALS: &[(&str, MakeEntry)] =
    &[kept!("max", 4096, 0, 1 << 20), kept!("reserve", 1024, 0, 1 << 20)];

const KEYS: &[(&str, MakeEntry)] = &[
    kept!("gc_delay", 300, 0, INT),
    ("maxbytes", |number| limit(number, &keys::LIMITS.bytes, 0, INT)),
    ("maxkeys", |number| limit(number, &keys::LIMITS.keys, 0, INT)),
    ("root_maxbytes", |number| limit(number, &keys::LIMITS.root_bytes, 0, INT)),
    ("root_maxkeys", |number| limit(number, &keys::LIMITS.root_keys, 0, INT)),
];

const RANDOM: &[(&str, MakeEntry)] = &[
    ("boot_id", |number| fact(number, || system::boot_id().to_vec())),
    ("entropy_avail", |number| value(number, 256)),
    ("poolsize", |number| value(number, 256)),
    kept!("urandom_min_reseed_secs", 60, 0, INT),
    ("uuid", |number| fact(number, || system::random_uuid().to_vec())),
    kept!("write_wakeup_threshold", 256, 0, INT),
];

const MEMORY: &[(&str, MakeEntry)] = &[
    kept!("admin_reserve_kbytes", 8192, 0, i64::MAX),
    ("compact_memory", |number| limit(number, &COMPACTION, 1, 1).with_mode(0o200)),
    kept!("compact_unevictable_allowed", 1, 0, 1),
    kept!("compaction_proactiveness", 20, 0, 100),
    ("dirty_background_bytes", |number| {
        // The last one that was set counts.
        let adjust = |bytes| instead_of(&dirty::BACKGROUND_RATIO, bytes);
        limit_with(number, &dirty::BACKGROUND_BYTES, 1, i64::MAX, adjust)
    }),
    ("dirty_background_ratio", |number| {
        let adjust = |ratio| instead_of(&dirty::BACKGROUND_BYTES, ratio);
        limit_with(number, &dirty::BACKGROUND_RATIO, 0, 100, adjust)
    }),
    ("dirty_bytes", |number| {
        let adjust = |bytes| instead_of(&dirty::RATIO, bytes);
        limit_with(number, &dirty::BYTES, 2 * PAGE_SIZE as i64, i64::MAX, adjust)
    }),
    ("dirty_expire_centisecs", |number| limit(number, &dirty::EXPIRE, 0, INT)),
    ("dirty_ratio", |number| {
        let adjust = |ratio| instead_of(&dirty::BYTES, ratio);
        limit_with(number, &dirty::RATIO, 0, 100, adjust)
    }),
    ("dirty_writeback_centisecs", |number| limit(number, &dirty::INTERVAL, 0, INT)),
    kept!("dirtytime_expire_seconds", 43_200, 0, INT),
    ("drop_caches", |number| {
        static VALUE: AtomicU64 = AtomicU64::new(0);
        let adjust = drop_caches;
        let content = Number { value: &VALUE, least: 1, most: 7, adjust };
        Entry::file(number, Arc::new(content)).with_mode(0o644)
    }),
    kept!("extfrag_threshold", 500, 0, 1000),
    kept!("hugetlb_shm_group", 0, 0, UNSIGNED),
    kept!("laptop_mode", 0, 0, INT),
    kept!("legacy_va_layout", 0, 0, 1),
    kept_text!("lowmem_reserve_ratio", "256\t256\t32\t0\t0"),
    ("max_map_count", |number| value(number, crate::memory::MOST_AREAS as u64)),
    kept!("min_free_kbytes", 4096, 0, INT),
    kept!("min_slab_ratio", 5, 0, 100),
    kept!("min_unmapped_ratio", 1, 0, 100),
    ("mmap_min_addr", |number| value(number, 65536)),
    ("nr_hugepages", |number| value(number, 0)),
    ("nr_overcommit_hugepages", |number| value(number, 0)),
    kept!("numa_stat", 1, 0, 1),
    kept_text!("numa_zonelist_order", "Node"),
    kept!("oom_dump_tasks", 1, 0, 1),
    kept!("oom_kill_allocating_task", 0, 0, 1),
    kept!("overcommit_kbytes", 0, 0, i64::MAX),
    kept!("overcommit_memory", 1, 0, 2),
    kept!("overcommit_ratio", 50, 0, INT),
    kept!("page-cluster", 3, 0, 31),
    kept!("page_lock_unfairness", 5, 0, INT),
    kept!("panic_on_oom", 0, 0, 2),
    kept!("percpu_pagelist_high_fraction", 0, 0, INT),
    kept!("stat_interval", 1, 0, INT),
    ("stat_refresh", |number| {
        Entry::file(number, Arc::new(super::system::nothing)).with_mode(0o600)
    }),
    kept!("swappiness", 60, 0, 200),
    kept!("unprivileged_userfaultfd", 0, 0, 1),
    kept!("user_reserve_kbytes", 131_072, 0, i64::MAX),
    kept!("vfs_cache_pressure", 100, 0, INT),
    kept!("watermark_boost_factor", 15_000, 0, INT),
    kept!("watermark_scale_factor", 10, 1, 3000),
    kept!("zone_reclaim_mode", 0, 0, 7),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_linux_reads_them() {
        assert_eq!(parse(b" 12\n"), Ok(12));
        assert_eq!(parse(b"-1"), Ok(-1));
        assert_eq!(parse(b"0x1f 7"), Ok(31));
        assert_eq!(parse(b"010"), Ok(8));
        for wrong in [b"".as_slice(), b"x", b"1x", b"--1", b"+1", b"\xff"] {
            assert_eq!(parse(wrong), Err(Errno::EINVAL), "{wrong:?}");
        }
    }
}
