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

/// The settings of one namespace.
pub struct Limits {
    /// Bytes of a segment.
    pub shmmax: Setting,
    /// Pages of all segments.
    pub shmall: Setting,
    /// Segments.
    pub shmmni: Setting,
    /// Semaphores of a set.
    pub semmsl: Setting,
    /// Semaphores.
    pub semmns: Setting,
    /// Operations of a call.
    pub semopm: Setting,
    /// Sets of semaphores.
    pub semmni: Setting,
    /// Bytes of a message.
    pub msgmax: Setting,
    /// Bytes of a queue.
    pub msgmnb: Setting,
    /// Queues.
    pub msgmni: Setting,
    /// POSIX message queues.
    pub mq_queues_max: Setting,
    /// Messages of a POSIX queue.
    pub mq_msg_max: Setting,
    /// Messages of a POSIX queue for which nothing is said.
    pub mq_msg_default: Setting,
    /// Bytes of a message of a POSIX queue.
    pub mq_msgsize_max: Setting,
    /// Bytes of a message of a POSIX queue for which nothing is said.
    pub mq_msgsize_default: Setting,
}

impl Limits {
    /// Those of a new namespace.
    pub const fn new() -> Limits {
        Limits {
            shmmax: Setting::new(UNLIMITED, u64::MAX),
            shmall: Setting::new(UNLIMITED, u64::MAX),
            shmmni: Setting::new(4096, MOST_OBJECTS),
            semmsl: Setting::new(32_000, MOST_INT),
            semmns: Setting::new(1_024_000_000, MOST_INT),
            semopm: Setting::new(500, MOST_INT),
            semmni: Setting::new(32_000, MOST_OBJECTS),
            msgmax: Setting::new(8192, MOST_INT),
            msgmnb: Setting::new(16_384, MOST_INT),
            msgmni: Setting::new(32_000, MOST_OBJECTS),
            mq_queues_max: Setting::new(256, MOST_INT),
            mq_msg_max: Setting::new(10, 65_536),
            mq_msg_default: Setting::new(10, 65_536),
            mq_msgsize_max: Setting::new(8192, 16 << 20),
            mq_msgsize_default: Setting::new(8192, 16 << 20),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new()
    }
}

/// A setting as the C type `int` of the structures.
pub fn as_int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
