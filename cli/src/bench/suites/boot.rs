//! What it takes until a program runs: time, size of what is booted, and memory. The guest program is
//! `bench/guest/boot.c`; `footprint.rs` has sizes and memory.

use crate::bench::suite::{Place, Suite, What, case, program, run};

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "boot",
    about: "reset to the first user instruction, size of what is booted, least memory",
    sources: &["bench/guest/boot.c"],
    // Ten boots for the least memory, some of which end at their own deadline.
    deadline_s: 240,
    runs: &[
        program("ferry", Place::Ferry("remote"), &[]),
        program("linux", Place::Peer(""), &[]),
        program("local", Place::Ferry("local"), &[]).cpus(1),
        program("linux1", Place::Peer(""), &[]).cpus(1),
        run("ferry", Place::Ferry("remote"), What::ImageSize).once(),
        run("linux", Place::Peer(""), What::ImageSize).once(),
        run("ferry", Place::Ferry("remote"), What::LeastMemory).once(),
        run("linux", Place::Peer(""), What::LeastMemory).once(),
    ],
    cases: &[
        case("reset to first user code", "ms", "ferry first_user", "linux first_user", 0.10),
        case("the same with one processor", "ms", "local first_user", "linux1 first_user", 0.10),
        case("size of kernel and files", "MiB", "ferry image", "linux image", 1.0).informs(),
        case("least memory", "MiB", "ferry least_memory", "linux least_memory", 1.0).informs(),
    ],
    ..Suite::EMPTY
};
