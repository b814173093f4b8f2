//! Resource limits of a process.
//!
//! The soft limits are read on hot paths (every new descriptor), so each is one atomic load. A pair
//! of soft and hard is written under the lock, so two writers never mix their pairs.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::process::{RLIM_INFINITY, RLIMIT_COUNT, ResourceLimit};
use base::sync::{Mutex, rank};

/// Which resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Resource {
    /// Processor seconds.
    Cpu = 0,
    /// Bytes of a file.
    FileSize = 1,
    /// Bytes of data segment.
    Data = 2,
    /// Bytes of the main stack.
    Stack = 3,
    /// Bytes of a core dump.
    Core = 4,
    /// Resident bytes; without effect, as on Linux.
    Resident = 5,
    /// Threads of one user.
    Threads = 6,
    /// One past the largest descriptor.
    Files = 7,
    /// Locked bytes.
    LockedMemory = 8,
    /// Bytes of address space.
    AddressSpace = 9,
    /// File locks; without effect, as on Linux.
    Locks = 10,
    /// Queued signals.
    PendingSignals = 11,
    /// Bytes in message queues.
    MessageQueue = 12,
    /// Highest nice value that may be asked for, as 20 - nice.
    Nice = 13,
    /// Highest real-time priority.
    RealTimePriority = 14,
    /// Microseconds of real-time scheduling without blocking.
    RealTimeTime = 15,
}

impl Resource {
    /// The resource of this number; `EINVAL` when there is none.
    pub fn new(number: u32) -> Result<Resource, Errno> {
        use Resource::*;
        const ALL: [Resource; RLIMIT_COUNT] = [
            Cpu,
            FileSize,
            Data,
            Stack,
            Core,
            Resident,
            Threads,
            Files,
            LockedMemory,
            AddressSpace,
            Locks,
            PendingSignals,
            MessageQueue,
            Nice,
            RealTimePriority,
            RealTimeTime,
        ];
        usize::try_from(number).ok().and_then(|n| ALL.get(n)).copied().ok_or(Errno::EINVAL)
    }
}

/// The limits of one process; shared by its threads, copied by `fork`, kept by `execve`.
pub struct Limits {
    soft: [AtomicU64; RLIMIT_COUNT],
    hard: Mutex<[u64; RLIMIT_COUNT]>,
}

impl Limits {
    /// The limits of the first process. `thread_limit` bounds the threads of one user.
    pub fn new(thread_limit: u64) -> Limits {
        const INFINITE: (u64, u64) = (RLIM_INFINITY, RLIM_INFINITY);
        let pairs: [(u64, u64); RLIMIT_COUNT] = [
            INFINITE,
            INFINITE,
            INFINITE,
            (8 << 20, RLIM_INFINITY),
            (0, RLIM_INFINITY),
            INFINITE,
            (thread_limit, thread_limit),
            (1024, 4096),
            (8 << 20, 8 << 20),
            INFINITE,
            INFINITE,
            (thread_limit, thread_limit),
            (819_200, 819_200),
            (0, 0),
            (0, 0),
            INFINITE,
        ];
        Limits {
            soft: pairs.map(|(soft, _)| AtomicU64::new(soft)),
            hard: Mutex::new(&rank::PROCESS, pairs.map(|(_, hard)| hard)),
        }
    }

    /// The soft limit.
    pub fn soft(&self, resource: Resource) -> u64 {
        self.soft.get(resource as usize).map_or(RLIM_INFINITY, |soft| soft.load(Ordering::Relaxed))
    }

    /// The pair of limits.
    pub fn get(&self, resource: Resource) -> ResourceLimit {
        let hard = self.hard.lock();
        ResourceLimit {
            soft: self.soft(resource),
            hard: hard.get(resource as usize).copied().unwrap_or(RLIM_INFINITY),
        }
    }

    /// Sets the pair and returns the old one. `EINVAL` when soft is above hard; `EPERM` when hard
    /// would rise and the caller may not (`may_raise`).
    pub fn set(
        &self,
        resource: Resource,
        limit: ResourceLimit,
        may_raise: bool,
    ) -> Result<ResourceLimit, Errno> {
        if limit.soft > limit.hard {
            return Err(Errno::EINVAL);
        }
        let mut hard = self.hard.lock();
        let old_soft = self.soft(resource);
        let index = resource as usize;
        let (Some(hard), Some(soft)) = (hard.get_mut(index), self.soft.get(index)) else {
            return Err(Errno::EINVAL);
        };
        if limit.hard > *hard && !may_raise {
            return Err(Errno::EPERM);
        }
        let old = ResourceLimit { soft: old_soft, hard: *hard };
        *hard = limit.hard;
        soft.store(limit.soft, Ordering::Relaxed);
        Ok(old)
    }

    /// A copy for a new process.
    pub fn duplicate(&self) -> Limits {
        let hard = self.hard.lock();
        Limits {
            soft: core::array::from_fn(|index| {
                AtomicU64::new(
                    self.soft.get(index).map_or(RLIM_INFINITY, |s| s.load(Ordering::Relaxed)),
                )
            }),
            hard: Mutex::new(&rank::PROCESS, *hard),
        }
    }
}
