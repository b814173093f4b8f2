//! What the shortest things cost. The guest program is `bench/guest/null.c`.

use crate::bench::suite::{Place, Suite, What, case, program, run};

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "null",
    about: "the shortest things: null call, read of a byte, fork, exec, page fault, boot",
    sources: &["bench/guest/null.c"],
    runs: &[
        program("auto", Place::Ferry("auto"), &[]).modelled(&["few"]),
        program("local", Place::Ferry("local"), &[]).modelled(&["few"]),
        program("remote", Place::Ferry("remote"), &[]).modelled(&["few"]),
        run("auto", Place::Ferry("auto"), What::WallOfTrue),
        program("linux", Place::Peer(""), &[]).modelled(&["few"]),
        run("linux", Place::Peer(""), What::WallOfTrue),
    ],
    cases: &[
        case("getppid", "ns", "auto getppid", "linux getppid", 0.60),
        case("getppid, local", "ns", "local getppid", "linux getppid", 0.60),
        case("getppid, remote", "ns", "remote getppid", "linux getppid", 1.5),
        case("read 1 byte, local", "ns", "local read_zero_1", "linux read_zero_1", 0.60),
        case("fork, exit, wait", "ns", "auto fork_exit_wait", "linux fork_exit_wait", 0.80),
        case(
            "fork, exec, wait",
            "ns",
            "auto fork_exec_exit_wait",
            "linux fork_exec_exit_wait",
            0.80,
        ),
        case("page fault", "ns", "auto page_fault", "linux page_fault", 0.80),
        case("first user code", "ns", "auto first_user", "linux first_user", 0.10),
        case("wall time of true", "ms", "auto wall", "linux wall", 0.4),
    ],
    ..Suite::EMPTY
};
