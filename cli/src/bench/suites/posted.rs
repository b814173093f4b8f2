//! Calls that are posted, beside traps of Linux and of Ferry, and beside io_uring; and the same code
//! natively on the host. The guest program is `bench/guest/posted.c`, the native one
//! `base/examples/posted`.
//!
//! Posted calls are measured on the call path `remote`, where a core does nothing but kernel work: it
//! scans. `patched` is the loop of traps as an ordinary program has it, on the path `posted`. `local` is
//! Ferry's own trap, which posting has to beat at a concurrency of one.

use crate::bench::suite::{Case, Place, Suite, Target, What, case, program, run};

/// Native figures only mean something beside one another, so this many rounds have all cases in turn.
const ROUNDS: &[&str] = &["10"];

const QUIET: &[&str] = &["quiet traps_per_1000", "quiet interrupts_in_10_s", "quiet quiet_rate"];

const fn beats_local(name: &'static str, posted: &'static str, local: &'static str) -> Case {
    case(name, "ns", posted, local, 1.0)
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "posted",
    about: "posted calls: alone, in batches, two processes; beside traps and io_uring; natively",
    sources: &["bench/guest/posted.c", "user/c/src/ferry.c"],
    headers: &["bench/guest", "user/c"],
    runs: &[
        program("posted", Place::Ferry("remote"), &["post"]),
        program("linux", Place::Peer(""), &[]),
        program("patched", Place::Ferry("posted"), &["trap"]),
        program("local", Place::Ferry("local"), &["trap"]),
        program("quiet", Place::Ferry("remote"), &["quiet"]).once(),
        run("host", Place::Host, What::Example("posted", ROUNDS)),
    ],
    cases: &[
        case("getppid, one posted", "ns", "posted posted_getppid", "linux trap_getppid", 0.35)
            .beside(QUIET)
            .paper("Memsc: 11639 ns posted, 256 ns Linux trap (Raspberry Pi 3)"),
        case("getppid, bare ping-pong", "ns", "posted posted_getppid", "linux ping_pong", 1.25)
            .informs(),
        case(
            "getppid, unmodified program",
            "ns",
            "patched trap_getppid",
            "linux trap_getppid",
            0.45,
        ),
        case(
            "getppid, batches of 64",
            "ns",
            "posted posted_getppid_batch_64",
            "linux trap_getppid",
            0.04,
        )
        .paper("Memsc: 770 ns per call"),
        case(
            "batches of 64, io_uring SQPOLL",
            "ns",
            "posted posted_getppid_batch_64",
            "linux io_uring_sqpoll_nop_64",
            0.0,
        )
        .rate(8.0),
        case(
            "p99 of one posted call",
            "ns",
            "posted posted_getppid_p99",
            "linux trap_getppid_p99",
            1.0,
        ),
        beats_local("getppid, Ferry local", "posted posted_getppid", "local trap_getppid"),
        beats_local("read 1 byte, Ferry local", "posted posted_read_1", "local trap_read_1"),
        beats_local("write 1 byte, Ferry local", "posted posted_write_1", "local trap_write_1"),
        beats_local("fstat, Ferry local", "posted posted_fstat", "local trap_fstat"),
        beats_local("lseek, Ferry local", "posted posted_lseek", "local trap_lseek"),
        beats_local(
            "clock_gettime, Ferry local",
            "posted posted_clock_gettime",
            "local trap_clock_gettime",
        ),
        case("read 1 byte, Linux", "ns", "posted posted_read_1", "linux trap_read_1", 1.0),
        case("write 1 byte, Linux", "ns", "posted posted_write_1", "linux trap_write_1", 1.0),
        case("fstat, Linux", "ns", "posted posted_fstat", "linux trap_fstat", 1.0),
        case("lseek, Linux", "ns", "posted posted_lseek", "linux trap_lseek", 1.0),
        case(
            "clock_gettime, Linux",
            "ns",
            "posted posted_clock_gettime",
            "linux trap_clock_gettime",
            1.0,
        ),
        case("traps per 1000 calls", "", "quiet traps_per_1000", "", 0.0)
            .wants(Target::ValueAtMost(1.0)),
        case("interrupts in 10 s", "", "quiet interrupts_in_10_s", "", 0.0)
            .wants(Target::ValueAtMost(0.0)),
        case("two processes, worst/best", "", "posted two_processes_share", "", 0.0)
            .wants(Target::ValueAtLeast(0.9))
            .beside(&["posted two_processes_rate"]),
        case("native: one / ping-pong", "ns", "host posted_getppid", "host ping_pong", 1.25),
        case("native: one / getppid", "ns", "host posted_getppid", "host getppid", 0.6),
        case(
            "native: depth 64 / getppid",
            "ns",
            "host posted_getppid_depth_64",
            "host getppid",
            0.05,
        )
        .beside(&["host posted_getppid_batch_64"]),
        case(
            "native: depth 64, SQPOLL",
            "ns",
            "host posted_getppid_depth_64",
            "host io_uring_sqpoll_nop_depth_64",
            0.0,
        )
        .rate(8.0),
        case(
            "native: depth 64, io_uring",
            "ns",
            "host posted_getppid_depth_64",
            "host io_uring_nop_64",
            0.0,
        )
        .rate(5.0),
    ],
    ..Suite::EMPTY
};
