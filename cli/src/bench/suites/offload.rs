//! The six tasks of Wu, *Exploring Asynchronous Operating System Design Using Rust*, in memory: calls of
//! one process, status of files, `wc`, and two of each at once. The guest program is
//! `bench/guest/offload.c`; nothing in it is made for Ferry.
//!
//! Two cores are one for the application and one for its calls, so two tasks at once have one core to
//! themselves on Ferry and two on Linux. `local` is the one-core kernel, which a second core has to beat.

use crate::bench::suite::{Place, Suite, case, program};

/// The cases of each task: its number, what it does, and how much of Linux's time it may take.
macro_rules! tasks {
    ($(($number:literal, $what:literal, $most:literal, $paper:literal)),* $(,)?) => {
        &[$(
            case(
                concat!("task ", $number, ", ", $what),
                "ms",
                concat!("posted task_", $number),
                concat!("linux task_", $number),
                $most,
            )
            .paper($paper),
            case(
                concat!("task ", $number, ", posted beside one core"),
                "ms",
                concat!("posted task_", $number),
                concat!("local task_", $number),
                1.0,
            ),
            case(
                concat!("task ", $number, ", remote"),
                "ms",
                concat!("remote task_", $number),
                concat!("linux task_", $number),
                $most,
            )
            .informs(),
            case(
                concat!("task ", $number, ", remote beside one core"),
                "ms",
                concat!("remote task_", $number),
                concat!("local task_", $number),
                1.0,
            )
            .informs(),
            case(
                concat!("task ", $number, ", one core on both sides"),
                "ms",
                concat!("local task_", $number),
                concat!("linux1 task_", $number),
                1.0,
            )
            .informs(),
        )*]
    };
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "offload",
    about: "six tasks on one core and on two: calls, status of files, wc, and two of each at once",
    sources: &["bench/guest/offload.c"],
    deadline_s: 120,
    runs: &[
        program("local", Place::Ferry("local"), &[]).cpus(1),
        program("linux1", Place::Peer(""), &[]).cpus(1),
        program("remote", Place::Ferry("remote"), &[]).cpus(2),
        program("posted", Place::Ferry("posted"), &[]).cpus(2),
        program("linux", Place::Peer(""), &[]).cpus(2),
    ],
    cases: tasks![
        (0, "calls", 0.7, "4943 ms on one core, 21422 ms on two (40 times the rounds)"),
        (1, "status of files", 0.8, "7523 ms on one core, 7526 ms on two"),
        (2, "wc", 0.8, "931 ms on one core, 942 ms on two"),
        (3, "two times calls", 0.7, "9872 ms on one core, 38032 ms on two (40 times the rounds)"),
        (4, "two times status of files", 0.8, "15042 ms on one core, 15071 ms on two"),
        (5, "two times wc", 0.8, "1655 ms on one core, 1696 ms on two"),
    ],
    ..Suite::EMPTY
};
