//! Rounds of calls by 1 to 256 coroutines, in turn by trap or posted all at once: the experiment of
//! ReL4. The guest program is `bench/guest/concurrency.c`.
//!
//! Both ways of Ferry are measured in one boot, in turn, on the path `local`: there a trapped call is
//! carried out where it traps, and what libferry posts goes to the kernel core, as on every path.

use crate::bench::suite::{Case, Curve, Place, Suite, Target, case, program};

const COROUTINES: &[u32] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
/// With so few, waiting in the kernel may cost a trap now and then.
const FEW: &[u32] = &[1, 2, 4];
const MANY: &[u32] = &[8, 16, 32, 64, 128, 256];

const PAPER: &str = "ReL4: slower at low concurrency, at most 1.31 times the synchronous rate";
const TRAPS_PAPER: &str = "ReL4: 1 synchronous, far below asynchronous";

/// At 64 coroutines: at least three times the rate.
const fn thrice(name: &'static str, posted: &'static str, trap: &'static str) -> Case {
    case(name, "cycles", posted, trap, 0.333).paper(PAPER)
}

const fn rounds(
    plot: &'static str,
    name: &'static str,
    posted: &'static str,
    other: &'static str,
) -> Curve {
    let case = case(name, "cycles", posted, other, 0.0).informs().paper(PAPER);
    Curve { plot, x: "coroutines", values: COROUTINES, case }
}

/// The same, where posting has to be ahead from one coroutine on.
const fn ahead(
    plot: &'static str,
    name: &'static str,
    posted: &'static str,
    trap: &'static str,
) -> Curve {
    let mut curve = rounds(plot, name, posted, trap);
    curve.case = curve.case.ahead_from(1.0);
    curve
}

const fn traps(
    values: &'static [u32],
    plot: &'static str,
    name: &'static str,
    posted: &'static str,
    target: Target,
) -> Curve {
    let case = case(name, "", posted, "", 0.0).wants(target).paper(TRAPS_PAPER);
    Curve { plot, x: "coroutines", values, case }
}

macro_rules! cases {
    ($($load:literal),*) => {
        &[$(
            thrice(
                concat!($load, ", 64: posted / trap"),
                concat!("ferry posted_", $load, "_64"),
                concat!("ferry trap_", $load, "_64"),
            ),
            thrice(
                concat!($load, ", 64: posted / Linux trap"),
                concat!("ferry posted_", $load, "_64"),
                concat!("linux trap_", $load, "_64"),
            ),
        )*]
    };
}

macro_rules! curves {
    (loads: $($load:literal),*; with_io_uring: $($uring:literal),*) => {
        &[
            $(
                ahead(
                    concat!($load, ": cycles per round"),
                    concat!($load, ": posted / trap"),
                    concat!("ferry posted_", $load, "_{}"),
                    concat!("ferry trap_", $load, "_{}"),
                ),
                ahead(
                    concat!($load, ": cycles per round"),
                    concat!($load, ": posted / Linux trap"),
                    concat!("ferry posted_", $load, "_{}"),
                    concat!("linux trap_", $load, "_{}"),
                ),
                traps(
                    FEW,
                    concat!($load, ": traps per call"),
                    concat!($load, ": traps per posted call"),
                    concat!("ferry posted_traps_", $load, "_{}"),
                    Target::Nothing,
                ),
                traps(
                    MANY,
                    concat!($load, ": traps per call"),
                    concat!($load, ": traps per posted call"),
                    concat!("ferry posted_traps_", $load, "_{}"),
                    Target::ValueAtMost(0.01),
                ),
            )*
            $(
                rounds(
                    concat!($uring, ": cycles per round"),
                    concat!($uring, ": posted / io_uring"),
                    concat!("ferry posted_", $uring, "_{}"),
                    concat!("linux uring_", $uring, "_{}"),
                ),
                rounds(
                    concat!($uring, ": cycles per round"),
                    concat!($uring, ": posted / io_uring polled"),
                    concat!("ferry posted_", $uring, "_{}"),
                    concat!("linux polled_", $uring, "_{}"),
                ),
            )*
        ]
    };
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "concurrency",
    about: "rounds of calls by 1 to 256 coroutines: posted, by trap, io_uring; traps per call",
    sources: &["bench/guest/concurrency.c", "user/c/src/ferry.c"],
    headers: &["bench/guest", "user/c"],
    deadline_s: 150,
    runs: &[
        program("ferry", Place::Ferry("local"), &["ferry"]),
        program("linux", Place::Peer(""), &["linux"]),
    ],
    cases: cases!("output", "mapping", "notification", "mixed", "general"),
    curves: curves! {
        loads: "output", "mapping", "notification", "mixed", "general";
        with_io_uring: "output", "notification"
    },
    ..Suite::EMPTY
};
