//! What the system says about itself: names, load, identity of this boot.
//!
//! Programs look at the system name to find out whether they are on Linux; an unmodified program must
//! find what it expects, so name and release are those of a Linux whose interface is offered, and the
//! version says who really is here.

use abi::process::{NAME_LENGTH, SystemNames};
use base::sync::{Mutex, Once, rank};
use core::sync::atomic::{AtomicU64, Ordering};
use hal::Contract;

use super::namespace::HostNames;
use super::table;

/// `uname -s`
pub const SYSTEM: &str = "Linux";
/// `uname -r`: the Linux whose interface programs may expect.
pub const RELEASE: &str = "6.1.0-ferry";
/// `uname -v`
pub const VERSION: &str = concat!("#1 SMP Ferry ", env!("CARGO_PKG_VERSION"));

/// Names that can be changed, of one namespace.
#[derive(Clone)]
pub struct ChangeableNames {
    host: [u8; NAME_LENGTH],
    domain: [u8; NAME_LENGTH],
}

impl ChangeableNames {
    /// The names at the start.
    pub const FIRST: ChangeableNames =
        ChangeableNames { host: field(b"ferry"), domain: field(b"(none)") };
}

const fn field(text: &[u8]) -> [u8; NAME_LENGTH] {
    let mut field = [0; NAME_LENGTH];
    let mut index = 0;
    while index < text.len() && index < NAME_LENGTH - 1 {
        field[index] = text[index];
        index += 1;
    }
    field
}

/// Names of the file systems, in the order of `/proc/filesystems`.
pub const FILE_SYSTEMS: [&str; 9] =
    ["sysfs", "tmpfs", "proc", "devtmpfs", "devpts", "mqueue", "ramfs", "9p", "overlay"];

/// `/proc/sys/fs/aio-max-nr`: requests that all contexts of native asynchronous input and output may
/// have room for.
pub static MOST_REQUESTS: AtomicU64 = AtomicU64::new(65536);
/// `/proc/sys/fs/aio-nr`: what they have room for.
pub static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// `/proc/sys/kernel/dmesg_restrict`: reading the kernel's log takes privilege.
pub static LOG_RESTRICTED: AtomicU64 = AtomicU64::new(1);

/// Whether reading the kernel's log takes privilege.
pub fn is_log_restricted() -> bool {
    LOG_RESTRICTED.load(Ordering::Relaxed) != 0
}

/// All names, as `uname` gives them in a namespace.
pub fn names(names: &HostNames) -> SystemNames {
    let names = names.names.lock();
    SystemNames {
        system: field(SYSTEM.as_bytes()),
        node: names.host,
        release: field(RELEASE.as_bytes()),
        version: field(VERSION.as_bytes()),
        machine: field(hal::Machine::NAME.as_bytes()),
        domain: names.domain,
    }
}

fn without_padding(name: &[u8; NAME_LENGTH]) -> alloc::vec::Vec<u8> {
    name.iter().copied().take_while(|byte| *byte != 0).collect()
}

/// The host name, without padding.
pub fn host_name(names: &HostNames) -> alloc::vec::Vec<u8> {
    without_padding(&names.names.lock().host)
}

/// The domain name, without padding.
pub fn domain_name(names: &HostNames) -> alloc::vec::Vec<u8> {
    without_padding(&names.names.lock().domain)
}

/// Sets the host name.
pub fn set_host_name(names: &HostNames, name: &[u8]) {
    names.names.lock().host = field(name);
}

/// Sets the domain name.
pub fn set_domain_name(names: &HostNames, name: &[u8]) {
    names.names.lock().domain = field(name);
}

/// Fraction bits of a load average.
const LOAD_SHIFT: u32 = 11;
const LOAD_ONE: u64 = 1 << LOAD_SHIFT;
/// What is left of a load of one after five seconds, for averages over 1, 5 and 15 minutes.
const DECAY: [u64; 3] = [1884, 2014, 2037];
const STEP_NS: u64 = 5_000_000_000;

struct LoadState {
    averages: [u64; 3],
    /// End of the last step that was counted.
    counted_ns: u64,
    /// Processor time up to then.
    used_ns: u64,
}

static LOAD: Mutex<LoadState> =
    Mutex::new(&rank::OPEN_FILE, LoadState { averages: [0; 3], counted_ns: 0, used_ns: 0 });

/// Processor time of threads that have ended: in user mode and in the kernel.
static ENDED_NS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Adds the time of a thread that has ended.
pub(super) fn add_ended_time(user_ns: u64, system_ns: u64) {
    for (counter, time_ns) in ENDED_NS.iter().zip([user_ns, system_ns]) {
        counter.fetch_add(time_ns, Ordering::Relaxed);
    }
}

/// Processor time of all threads since boot, ended ones included: in user mode and in the kernel.
pub fn processor_time() -> [u64; 2] {
    let mut sum = [0, 1].map(|index: usize| {
        ENDED_NS.get(index).map_or(0, |counter| counter.load(Ordering::Relaxed))
    });
    for process in table::processes() {
        process.for_each_thread(|thread| {
            let usage = thread.usage();
            sum = [sum[0] + usage.user_ns, sum[1] + usage.system_ns];
        });
    }
    sum
}

/// Load averages over 1, 5 and 15 minutes with 11 fraction bits: the mean number of threads that
/// used a core. Worked out from processor time when somebody asks, because an idle system has no
/// tick that could do it.
pub fn load_averages() -> [u64; 3] {
    let now_ns = base::time::now_ns();
    let [user_ns, system_ns] = processor_time();
    let used_ns = user_ns + system_ns;
    let mut load = LOAD.lock();
    let steps = now_ns.saturating_sub(load.counted_ns) / STEP_NS;
    if steps > 0 {
        let span_ns = steps * STEP_NS;
        let active = used_ns.saturating_sub(load.used_ns).saturating_mul(LOAD_ONE) / span_ns;
        for (average, decay) in load.averages.iter_mut().zip(DECAY) {
            let kept = power(decay, steps);
            *average = (*average * kept + active * (LOAD_ONE - kept)) >> LOAD_SHIFT;
        }
        load.counted_ns += span_ns;
        load.used_ns = used_ns;
    }
    load.averages
}

/// `base` to the power of `exponent`, both with `LOAD_SHIFT` fraction bits.
fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = LOAD_ONE;
    while exponent > 0 {
        if exponent & 1 != 0 {
            result = (result * base) >> LOAD_SHIFT;
        }
        base = (base * base) >> LOAD_SHIFT;
        exponent >>= 1;
    }
    result
}

/// A random number in the text form of a UUID, version 4.
pub fn random_uuid() -> [u8; 36] {
    let mut bytes = [0; 16];
    base::random::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = [b'-'; 36];
    let positions = (0..36).filter(|position| !matches!(position, 8 | 13 | 18 | 23));
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (position, digit) in positions.zip(digits) {
        if let Some(place) = text.get_mut(position) {
            *place = b"0123456789abcdef".get(usize::from(digit)).copied().unwrap_or(b'0');
        }
    }
    text
}

/// The identity of this boot, in the text form of a UUID.
pub fn boot_id() -> &'static [u8; 36] {
    static BOOT_ID: Once<[u8; 36]> = Once::new();
    BOOT_ID.call_once(random_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_decays_to_a_third_in_its_time() {
        let after_a_minute = power(DECAY[0], 12);
        assert!((700..=760).contains(&after_a_minute), "{after_a_minute}");
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let text = random_uuid();
        assert_eq!(text[14], b'4');
        assert!(matches!(text[19], b'8' | b'9' | b'a' | b'b'));
        assert_eq!(text.iter().filter(|byte| **byte == b'-').count(), 4);
    }
}
