//! What a thread that only computes loses while another processor is busy with the kernel's work. The
//! guest program is `bench/guest/noise.c`.
//!
//! On Ferry the thread has core 0, and posted reads keep the kernel core busy. Linux once as it is, once
//! with the thread's processor taken out of everything that it lets one take it out of. The host itself
//! is the floor: under emulation its noise is everybody's.

use crate::bench::suite::{Place, Suite, Target, case, program};

const ISOLATED: &str = "isolcpus=1 nohz_full=1 rcu_nocbs=1";

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "noise",
    about: "missing time, worst gap and interrupts of a thread that only computes",
    sources: &["bench/guest/noise.c", "user/c/src/ferry.c"],
    headers: &["bench/guest", "user/c"],
    runs: &[
        program("ferry", Place::Ferry("remote"), &["posting"]).cpus(2),
        program("linux", Place::Peer(""), &["pinned"]).cpus(2),
        program("isolated", Place::Peer(ISOLATED), &["pinned"]).cpus(2),
        program("host", Place::Host, &["pinned"]),
    ],
    cases: &[
        case("interrupts in 10 s", "", "ferry interrupts", "linux interrupts", 0.0)
            .wants(Target::ValueAtMost(0.0)),
        case("interrupts, isolated", "", "ferry interrupts", "isolated interrupts", 0.0).informs(),
        case("missing time", "ppm", "ferry missing", "linux missing", 1.0).informs(),
        case("missing time, isolated", "ppm", "ferry missing", "isolated missing", 1.0).informs(),
        case("missing time, host", "ppm", "ferry missing", "host missing", 1.0).informs(),
        case("worst gap", "us", "ferry worst_gap", "linux worst_gap", 1.0).informs(),
        case("worst gap, isolated", "us", "ferry worst_gap", "isolated worst_gap", 1.0).informs(),
        case("worst gap, host", "us", "ferry worst_gap", "host worst_gap", 1.0).informs(),
    ],
    ..Suite::EMPTY
};
