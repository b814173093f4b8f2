//! Capabilities of `capabilities(7)`: what a privileged thread may do, one bit of a set each.

/// What a privileged thread may do; the value is the number of its bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// `CAP_CHOWN`: change owners of files.
    ChangeOwner = 0,
    /// `CAP_DAC_OVERRIDE`: ignore permission bits.
    OverrideAccess = 1,
    /// `CAP_DAC_READ_SEARCH`: ignore permission bits to read files and to search directories.
    OverrideSearch = 2,
    /// `CAP_FOWNER`: do what only the owner of a file may do.
    FileOwner = 3,
    /// `CAP_FSETID`: keep set-id bits where others lose them.
    FileSetId = 4,
    /// `CAP_KILL`: send signals to anybody.
    Kill = 5,
    /// `CAP_SETGID`: change group ids freely.
    SetGroup = 6,
    /// `CAP_SETUID`: change user ids freely.
    SetUser = 7,
    /// `CAP_SETPCAP`: drop capabilities from the bounding set.
    SetCapabilities = 8,
    /// `CAP_LINUX_IMMUTABLE`: change the flags of files that forbid changes.
    Immutable = 9,
    /// `CAP_NET_BIND_SERVICE`: bind sockets to low ports.
    BindService = 10,
    /// `CAP_NET_BROADCAST`.
    Broadcast = 11,
    /// `CAP_NET_ADMIN`: administer the network.
    NetworkAdminister = 12,
    /// `CAP_NET_RAW`: use raw sockets.
    RawSockets = 13,
    /// `CAP_IPC_LOCK`: lock memory beyond the limit.
    LockMemory = 14,
    /// `CAP_IPC_OWNER`: ignore permissions of System V objects.
    IpcOwner = 15,
    /// `CAP_SYS_MODULE`: load and unload modules of the kernel.
    Modules = 16,
    /// `CAP_SYS_RAWIO`: touch the machine itself; map the lowest addresses.
    RawIo = 17,
    /// `CAP_SYS_CHROOT`: change the root directory.
    ChangeRoot = 18,
    /// `CAP_SYS_PTRACE`: trace and inspect anybody.
    Trace = 19,
    /// `CAP_SYS_PACCT`: switch process accounting on and off.
    Accounting = 20,
    /// `CAP_SYS_ADMIN`: administer: host name, mounts.
    Administer = 21,
    /// `CAP_SYS_BOOT`: restart the machine.
    Boot = 22,
    /// `CAP_SYS_NICE`: raise priorities.
    Nice = 23,
    /// `CAP_SYS_RESOURCE`: raise limits.
    Resource = 24,
    /// `CAP_SYS_TIME`: set the clock.
    Time = 25,
    /// `CAP_SYS_TTY_CONFIG`: hang terminals up.
    TerminalConfiguration = 26,
    /// `CAP_MKNOD`: make device nodes.
    MakeNode = 27,
    /// `CAP_LEASE`: take leases on files of others.
    Lease = 28,
    /// `CAP_AUDIT_WRITE`: write records of the audit.
    AuditWrite = 29,
    /// `CAP_SETFCAP`: give capabilities to files.
    SetFileCapabilities = 31,
    /// `CAP_SYSLOG`: read the log of the kernel.
    KernelLog = 34,
    /// `CAP_WAKE_ALARM`: make timers that wake the machine.
    WakeAlarm = 35,
}

impl Capability {
    /// The bit of the capability in a set.
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// Number of the last capability that Linux knows.
pub const LAST_CAPABILITY: u32 = 40;
/// All capabilities.
pub const ALL_CAPABILITIES: u64 = (1 << (LAST_CAPABILITY + 1)) - 1;
