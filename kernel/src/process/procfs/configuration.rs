//! `/proc/config.gz`: which parts of Linux are here, in the form of its configuration. Suites read it to know
//! what to try; so it must say what is true. The text is packed without being compressed.

use alloc::vec::Vec;

use abi::Errno;

/// What there is.
const PRESENT: &[&str] = &[
    "64BIT",
    "X86_64",
    "X86",
    "MMU",
    "SMP",
    "MULTIUSER",
    "PRINTK",
    "PROC_FS",
    "PROC_SYSCTL",
    "PROC_PAGE_MONITOR",
    "PROC_CHILDREN",
    "SYSFS",
    "SYSFS_SYSCALL",
    "TMPFS",
    "TMPFS_XATTR",
    "SHMEM",
    "DEVTMPFS",
    "UNIX98_PTYS",
    "TTY",
    "BLOCK",
    "VIRTIO_BLK",
    "EXT4_FS",
    "9P_FS",
    "NET_9P",
    "NET_9P_VIRTIO",
    "VIRTIO",
    "VIRTIO_MMIO",
    "BINFMT_ELF",
    "BINFMT_SCRIPT",
    "SYSVIPC",
    "SYSVIPC_SYSCTL",
    "POSIX_MQUEUE",
    "POSIX_MQUEUE_SYSCTL",
    "POSIX_TIMERS",
    "HIGH_RES_TIMERS",
    "FUTEX",
    "FUTEX_PI",
    "EPOLL",
    "SIGNALFD",
    "TIMERFD",
    "EVENTFD",
    "AIO",
    "ADVISE_SYSCALLS",
    "MEMBARRIER",
    "KCMP",
    "FHANDLE",
    "INOTIFY_USER",
    "DNOTIFY",
    "FILE_LOCKING",
    "CROSS_MEMORY_ATTACH",
    "TASK_IO_ACCOUNTING",
    "NET",
    "UNIX",
    "KEYS",
    "SECCOMP",
    "SECCOMP_FILTER",
    "NUMA",
    "MIGRATION",
    "MODIFY_LDT_SYSCALL",
    "X86_IOPL_IOPERM",
    "IKCONFIG",
    "IKCONFIG_PROC",
];

/// What suites ask for and there is not.
const ABSENT: &[&str] = &[
    "NAMESPACES",
    "UTS_NS",
    "IPC_NS",
    "PID_NS",
    "NET_NS",
    "USER_NS",
    "TIME_NS",
    "CGROUPS",
    "SWAP",
    "MODULES",
    "KALLSYMS",
    "BSD_PROCESS_ACCT",
    "QUOTA",
    "FANOTIFY",
    "USERFAULTFD",
    "IO_URING",
    "BPF_SYSCALL",
    "PERF_EVENTS",
    "RSEQ",
    "HUGETLBFS",
    "HUGETLB_PAGE",
    "TRANSPARENT_HUGEPAGE",
    "KSM",
    "INET",
    "IPV6",
    "BLK_DEV_LOOP",
    "TMPFS_POSIX_ACL",
    "CHECKPOINT_RESTORE",
    "KEXEC",
    "KEXEC_FILE",
    "SECURITY_LANDLOCK",
    "SECRETMEM",
    "UCLAMP_TASK",
    "SCHED_AUTOGROUP",
    "COREDUMP",
    "KEY_DH_OPERATIONS",
    "PERSISTENT_KEYRINGS",
    "TRUSTED_KEYS",
    "ENCRYPTED_KEYS",
    "BIG_KEYS",
    "FAULT_INJECTION",
    "PREEMPT_RT",
    "X86_SGX",
    "FTRACE",
    "HIBERNATION",
];

fn text() -> Vec<u8> {
    let mut text = Vec::from(&b"# Linux/x86_64 Kernel Configuration\n"[..]);
    for name in PRESENT {
        text.extend_from_slice(b"CONFIG_");
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"=y\n");
    }
    text.extend_from_slice(b"CONFIG_HZ=100\nCONFIG_DEFAULT_MMAP_MIN_ADDR=65536\n");
    text.extend_from_slice(b"CONFIG_NODES_SHIFT=0\nCONFIG_LSM=\"\"\n");
    for name in ABSENT {
        text.extend_from_slice(b"# CONFIG_");
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b" is not set\n");
    }
    text
}

/// The checksum of gzip (RFC 1952, section 8).
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 != 0 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes
        .iter()
        .fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

/// Packs bytes into a gzip file of stored blocks (RFC 1951, section 3.2.4).
fn pack(bytes: &[u8]) -> Vec<u8> {
    const LONGEST_BLOCK: usize = 65535;
    let mut packed = Vec::from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    let mut blocks = bytes.chunks(LONGEST_BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        packed.push(u8::from(blocks.peek().is_none()));
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(&(!length).to_le_bytes());
        packed.extend_from_slice(block);
    }
    packed.extend_from_slice(&checksum(bytes).to_le_bytes());
    packed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    packed
}

pub(super) fn packed() -> Result<Vec<u8>, Errno> {
    Ok(pack(&text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_gzip() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_packed_text_says_its_length_twice() {
        let packed = pack(b"abc");
        assert_eq!(packed[10..15], [1, 3, 0, 0xfc, 0xff]);
        assert_eq!(packed[15..18], *b"abc");
        assert_eq!(packed[packed.len() - 4..], 3_u32.to_le_bytes());
    }

    #[test]
    fn nothing_is_both_there_and_not() {
        assert!(ABSENT.iter().all(|name| !PRESENT.contains(name)));
    }
}
