//! What may exist: the settings of `/proc/sys/kernel` and `/proc/sys/fs/mqueue`.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that the administrator may change, and the largest that it may be.
pub struct Setting {
    value: AtomicU64,
    /// The largest value.
    pub most: u64,
}

impl Setting {
    const fn new(value: u64, most: u64) -> Setting {
        Setting { value: AtomicU64::new(value), most }
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets it; false when that is too much.
    pub fn set(&self, value: u64) -> bool {
        let is_permitted = value <= self.most;
        if is_permitted {
            self.value.store(value, Ordering::Relaxed);
        }
        is_permitted
    }
}

const MOST_INT: u64 = i32::MAX as u64;
const MOST_OBJECTS: u64 = super::table::MOST_OBJECTS as u64;
/// No limit, but sums of a few do not overflow.
const UNLIMITED: u64 = u64::MAX - (1 << 24);

/// Bytes of a segment.
pub static SHMMAX: Setting = Setting::new(UNLIMITED, u64::MAX);
/// Pages of all segments.
pub static SHMALL: Setting = Setting::new(UNLIMITED, u64::MAX);
/// Segments.
pub static SHMMNI: Setting = Setting::new(4096, MOST_OBJECTS);
/// Semaphores of a set.
pub static SEMMSL: Setting = Setting::new(32_000, MOST_INT);
/// Semaphores.
pub static SEMMNS: Setting = Setting::new(1_024_000_000, MOST_INT);
/// Operations of a call.
pub static SEMOPM: Setting = Setting::new(500, MOST_INT);
/// Sets of semaphores.
pub static SEMMNI: Setting = Setting::new(32_000, MOST_OBJECTS);
/// Bytes of a message.
pub static MSGMAX: Setting = Setting::new(8192, MOST_INT);
/// Bytes of a queue.
pub static MSGMNB: Setting = Setting::new(16_384, MOST_INT);
/// Queues.
pub static MSGMNI: Setting = Setting::new(32_000, MOST_OBJECTS);

/// POSIX message queues.
pub static MQ_QUEUES_MAX: Setting = Setting::new(256, MOST_INT);
/// Messages of a POSIX queue.
pub static MQ_MSG_MAX: Setting = Setting::new(10, 65_536);
/// Messages of a POSIX queue for which nothing is said.
pub static MQ_MSG_DEFAULT: Setting = Setting::new(10, 65_536);
/// Bytes of a message of a POSIX queue.
pub static MQ_MSGSIZE_MAX: Setting = Setting::new(8192, 16 << 20);
/// Bytes of a message of a POSIX queue for which nothing is said.
pub static MQ_MSGSIZE_DEFAULT: Setting = Setting::new(8192, 16 << 20);

/// A setting as the C type `int` of the structures.
pub fn as_int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
