//! The six tasks of Wu, *Exploring Asynchronous Operating System Design Using Rust*, in memory: calls of
//! one process, status of files, `wc`, and two of each at once. The guest program is
//! `bench/guest/offload.c`; nothing in it is made for Ferry.
//!
//! Two cores are one for the application and one for its calls, so two tasks at once have one core to
//! themselves on Ferry and two on Linux. `local` is the one-core kernel, which a second core has to beat.

use crate::bench::suite::{Place, Suite, case, program};

/// A tenth of everything, for the model of caches and TLBs.
const FEW: &[&str] = &["few"];

/// Everything at home, on two application cores.
const LOCAL: &str = "local --app-cores 0-1 --kernel-cores 1";

/// The cases of each task: its number, its region of the model, what it does, and how much of Linux's
/// time it may take.
macro_rules! tasks {
    ($(($number:literal, $region:literal, $what:literal, $most:literal, $paper:literal)),* $(,)?) => {
        &[$(
            case(
                concat!("task ", $number, ", auto"),
                "ms",
                concat!("auto task_", $number),
                concat!("linux task_", $number),
                0.7,
            ),
            case(
                concat!("task ", $number, ", auto beside local on two cores"),
                "ms",
                concat!("auto task_", $number),
                concat!("local2 task_", $number),
                1.05,
            ),
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
            case(
                concat!("task ", $number, ", modelled LLC misses, one core"),
                "per 1000",
                concat!("posted@model ", $region, ".all.llc_mpki"),
                concat!("local@model ", $region, ".all.llc_mpki"),
                1.0 / 3.0,
            )
            .beside(&[
                concat!("posted@model ", $region, ".cpu0.llc_mpki"),
                concat!("posted@model ", $region, ".cpu1.llc_mpki"),
                concat!("posted@model ", $region, ".all.coherence_mpki"),
            ])
            .paper("about 1/3 in task 0"),
            case(
                concat!("task ", $number, ", modelled instructions, one core"),
                "",
                concat!("posted@model ", $region, ".all.instructions"),
                concat!("local@model ", $region, ".all.instructions"),
                1.0,
            )
            .informs()
            .beside(&[
                concat!("posted@model ", $region, ".cpu0.instructions"),
                concat!("posted@model ", $region, ".cpu1.instructions"),
            ])
            .paper("up to 6 times"),
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
        program("local", Place::Ferry("local"), &[]).cpus(1).modelled(FEW),
        program("linux1", Place::Peer(""), &[]).cpus(1).modelled(FEW),
        program("auto", Place::Ferry("auto"), &[]).cpus(2),
        program("local2", Place::Ferry(LOCAL), &[]).cpus(2),
        program("remote", Place::Ferry("remote"), &[]).cpus(2).modelled(FEW),
        program("posted", Place::Ferry("posted"), &[]).cpus(2).modelled(FEW),
        program("linux", Place::Peer(""), &[]).cpus(2).modelled(FEW),
    ],
    cases: tasks![
        (0, 1, "calls", 0.7, "4943 ms on one core, 21422 ms on two (40 times the rounds)"),
        (1, 2, "status of files", 0.8, "7523 ms on one core, 7526 ms on two"),
        (2, 3, "wc", 0.8, "931 ms on one core, 942 ms on two"),
        (
            3,
            4,
            "two times calls",
            0.7,
            "9872 ms on one core, 38032 ms on two (40 times the rounds)"
        ),
        (4, 5, "two times status of files", 0.8, "15042 ms on one core, 15071 ms on two"),
        (5, 6, "two times wc", 0.8, "1655 ms on one core, 1696 ms on two"),
    ],
    ..Suite::EMPTY
};
