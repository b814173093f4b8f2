//! System V IPC in the Linux ABI: commands, flags, and the structures of `shmctl`, `semctl`, `msgctl`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A key that finds nothing: a new object each time.
pub const IPC_PRIVATE: i32 = 0;
/// Make the object if there is none.
pub const IPC_CREAT: u32 = 0o1000;
/// With `IPC_CREAT`: fail if there is one.
pub const IPC_EXCL: u32 = 0o2000;
/// Do not wait.
pub const IPC_NOWAIT: u32 = 0o4000;

/// Remove the object.
pub const IPC_RMID: i32 = 0;
/// Set owner, mode and the like.
pub const IPC_SET: i32 = 1;
/// Describe the object.
pub const IPC_STAT: i32 = 2;
/// Describe the limits.
pub const IPC_INFO: i32 = 3;
/// Accepted in a command and ignored: the structures are the 64-bit ones anyway.
pub const IPC_64: i32 = 0x100;

/// Lock a segment in memory.
pub const SHM_LOCK: i32 = 11;
/// Unlock it.
pub const SHM_UNLOCK: i32 = 12;
/// As `IPC_STAT`, by index.
pub const SHM_STAT: i32 = 13;
/// What is in use.
pub const SHM_INFO: i32 = 14;
/// As `SHM_STAT`, whatever the permissions.
pub const SHM_STAT_ANY: i32 = 15;

/// `shmget`: huge pages.
pub const SHM_HUGETLB: u32 = 0o4000;
/// `shmget`: promise no memory.
pub const SHM_NORESERVE: u32 = 0o10000;
/// `shmat`: read only.
pub const SHM_RDONLY: u32 = 0o10000;
/// `shmat`: round the address down.
pub const SHM_RND: u32 = 0o20000;
/// `shmat`: replace what is mapped there.
pub const SHM_REMAP: u32 = 0o40000;
/// `shmat`: executable.
pub const SHM_EXEC: u32 = 0o100000;
/// Mode bit: removed once nobody is attached.
pub const SHM_DEST: u32 = 0o1000;
/// Mode bit: locked in memory.
pub const SHM_LOCKED: u32 = 0o2000;

/// Process that changed the value last.
pub const GETPID: i32 = 11;
/// The value.
pub const GETVAL: i32 = 12;
/// All values.
pub const GETALL: i32 = 13;
/// How many wait for the value to rise.
pub const GETNCNT: i32 = 14;
/// How many wait for zero.
pub const GETZCNT: i32 = 15;
/// Set the value.
pub const SETVAL: i32 = 16;
/// Set all values.
pub const SETALL: i32 = 17;
/// As `IPC_STAT`, by index.
pub const SEM_STAT: i32 = 18;
/// What is in use.
pub const SEM_INFO: i32 = 19;
/// As `SEM_STAT`, whatever the permissions.
pub const SEM_STAT_ANY: i32 = 20;
/// Flag of an operation: taken back when the process ends.
pub const SEM_UNDO: u32 = 0x1000;
/// Largest value of a semaphore, and largest adjustment at the end of a process.
pub const SEMVMX: i32 = 32767;

/// As `IPC_STAT`, by index.
pub const MSG_STAT: i32 = 11;
/// What is in use.
pub const MSG_INFO: i32 = 12;
/// As `MSG_STAT`, whatever the permissions.
pub const MSG_STAT_ANY: i32 = 13;
/// Cut off what does not fit.
pub const MSG_NOERROR: u32 = 0o10000;
/// Any type but this.
pub const MSG_EXCEPT: u32 = 0o20000;
/// Copy the message of this index and leave it there.
pub const MSG_COPY: u32 = 0o40000;

/// `struct ipc64_perm`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IpcPermission {
    /// Its key.
    pub key: i32,
    /// Owner.
    pub user: u32,
    /// Group of the owner.
    pub group: u32,
    /// Who made it.
    pub creator_user: u32,
    /// Group of who made it.
    pub creator_group: u32,
    /// Mode bits.
    pub mode: u32,
    /// How often its index was given away before.
    pub sequence: u16,
    /// Zero.
    pub padding: [u16; 3],
    /// Zero.
    pub unused: [u64; 2],
}

/// `struct shmid64_ds`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SegmentStatus {
    /// Owner and mode.
    pub permission: IpcPermission,
    /// Bytes.
    pub size: u64,
    /// Seconds of the last attachment.
    pub attached_s: i64,
    /// Seconds of the last detachment.
    pub detached_s: i64,
    /// Seconds of the last change.
    pub changed_s: i64,
    /// Process that made it.
    pub creator: i32,
    /// Process that attached or detached last.
    pub last: i32,
    /// Mappings.
    pub attachments: u64,
    /// Zero.
    pub unused: [u64; 2],
}

/// `struct shminfo64`
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct SegmentLimits {
    /// Largest segment, in bytes.
    pub largest: u64,
    /// Smallest segment, in bytes.
    pub smallest: u64,
    /// Most segments.
    pub segments: u64,
    /// Most segments of a process.
    pub per_process: u64,
    /// Pages of all segments together.
    pub pages: u64,
    /// Zero.
    pub unused: [u64; 4],
}

/// `struct shm_info`
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct SegmentUsage {
    /// Segments.
    pub segments: i32,
    /// Zero.
    pub padding: i32,
    /// Their pages.
    pub pages: u64,
    /// Pages in memory.
    pub resident: u64,
    /// Pages swapped out, swaps tried, swaps done.
    pub swapped: [u64; 3],
}

/// `struct semid64_ds`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SemaphoreStatus {
    /// Owner and mode.
    pub permission: IpcPermission,
    /// Seconds of the last operation.
    pub operated_s: i64,
    /// Zero.
    pub unused: u64,
    /// Seconds of the last change.
    pub changed_s: i64,
    /// Zero.
    pub unused_too: u64,
    /// Semaphores in the set.
    pub count: u64,
    /// Zero.
    pub rest: [u64; 2],
}

/// `struct seminfo`
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct SemaphoreLimits {
    /// Not used by Linux.
    pub map: i32,
    /// Most sets.
    pub sets: i32,
    /// Most semaphores.
    pub semaphores: i32,
    /// Not used by Linux.
    pub undo_structures: i32,
    /// Most semaphores of a set.
    pub per_set: i32,
    /// Most operations of a call.
    pub operations: i32,
    /// Not used by Linux.
    pub undo_entries: i32,
    /// Size of an undo structure; with `SEM_INFO`, sets.
    pub undo_size: i32,
    /// Largest value.
    pub value: i32,
    /// Largest adjustment; with `SEM_INFO`, semaphores.
    pub adjustment: i32,
}

/// `struct sembuf`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SemaphoreOperation {
    /// Which semaphore of the set.
    pub index: u16,
    /// What is added; 0 waits for zero.
    pub change: i16,
    /// `IPC_NOWAIT`, `SEM_UNDO`.
    pub flags: i16,
}

/// `struct msqid64_ds`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct QueueStatus {
    /// Owner and mode.
    pub permission: IpcPermission,
    /// Seconds of the last message sent.
    pub sent_s: i64,
    /// Seconds of the last message received.
    pub received_s: i64,
    /// Seconds of the last change.
    pub changed_s: i64,
    /// Bytes in the queue.
    pub bytes: u64,
    /// Messages in the queue.
    pub messages: u64,
    /// Most bytes in the queue.
    pub most_bytes: u64,
    /// Process that sent last.
    pub sender: i32,
    /// Process that received last.
    pub receiver: i32,
    /// Zero.
    pub unused: [u64; 2],
}

/// `struct msginfo`
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct QueueLimits {
    /// KiB of all queues; with `MSG_INFO`, queues.
    pub pool: i32,
    /// Not used by Linux; with `MSG_INFO`, messages.
    pub map: i32,
    /// Largest message.
    pub message: i32,
    /// Bytes of a new queue.
    pub queue: i32,
    /// Most queues.
    pub queues: i32,
    /// Not used by Linux.
    pub segment_size: i32,
    /// Not used by Linux; with `MSG_INFO`, bytes.
    pub headers: i32,
    /// Not used by Linux.
    pub segments: u16,
    /// Zero.
    pub padding: u16,
}

const _: () = {
    assert!(size_of::<IpcPermission>() == 48);
    assert!(size_of::<SegmentStatus>() == 112);
    assert!(size_of::<SegmentLimits>() == 72);
    assert!(size_of::<SegmentUsage>() == 48);
    assert!(size_of::<SemaphoreStatus>() == 104);
    assert!(size_of::<SemaphoreLimits>() == 40);
    assert!(size_of::<SemaphoreOperation>() == 6);
    assert!(size_of::<QueueStatus>() == 120);
    assert!(size_of::<QueueLimits>() == 32);
};
