//! The five stages of opening, closing, reading and writing a file of 4 KiB in memory, on each path. The
//! guest program is `bench/guest/stages.c`.
//!
//! Only Ferry knows its stages; Linux has the whole call beside it. Timing the stages takes time itself,
//! some tens of nanoseconds each: the suites `null` and `posted` say what calls cost without.

use crate::bench::suite::{Case, Place, Suite, case, program};

const LOCAL: &str = "local --append ferry.stages=1";
const REMOTE: &str = "remote --append ferry.stages=1";

/// The whole of a call on a path, beside Linux.
const fn whole(name: &'static str, ferry: &'static str, peer: &'static str) -> Case {
    case(name, "ns", ferry, peer, 1.0).informs()
}

const fn stage(name: &'static str, figure: &'static str) -> Case {
    case(name, "ns", figure, "", 0.0).informs()
}

const fn share(name: &'static str, figure: &'static str, paper: &'static str) -> Case {
    case(name, "%", figure, "", 0.0).informs().paper(paper)
}

/// The cases of one call on one path.
macro_rules! call {
    ($call:literal, $figure:literal, $side:literal, $paper:literal) => {
        [
            whole(
                concat!($call, ", ", $side),
                concat!($side, " ", $figure, "_total"),
                concat!("linux ", $figure, "_total"),
            ),
            stage(concat!($call, ", ", $side, ": enter"), concat!($side, " ", $figure, "_enter")),
            stage(concat!($call, ", ", $side, ": fly-in"), concat!($side, " ", $figure, "_fly_in")),
            stage(concat!($call, ", ", $side, ": handle"), concat!($side, " ", $figure, "_handle")),
            stage(
                concat!($call, ", ", $side, ": fly-out"),
                concat!($side, " ", $figure, "_fly_out"),
            ),
            stage(concat!($call, ", ", $side, ": exit"), concat!($side, " ", $figure, "_exit")),
            share(
                concat!($call, ", ", $side, ": flights"),
                concat!($side, " ", $figure, "_flight_share"),
                $paper,
            ),
        ]
    };
}

/// The cases of one call on every path.
macro_rules! paths {
    ($call:literal, $figure:literal, $paper:literal) => {
        [
            call!($call, $figure, "local", $paper),
            call!($call, $figure, "remote", $paper),
            call!($call, $figure, "posted", $paper),
        ]
    };
}

const CASES: [[[Case; 7]; 3]; 4] = [
    paths!("open", "openat", "GenerOS: flights 68 %"),
    paths!("close", "close", "GenerOS: flights 48 %"),
    paths!("read 4 KiB", "read", "GenerOS: flights 0.13 % (disk)"),
    paths!("write 4 KiB", "write", "GenerOS: flights 0.46 % (disk)"),
];

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "stages",
    about: "enter, fly-in, handle, fly-out and exit of open, close, read and write, on each path",
    sources: &["bench/guest/stages.c", "user/c/src/ferry.c"],
    headers: &["bench/guest", "user/c"],
    runs: &[
        program("local", Place::Ferry(LOCAL), &["trap"]).cpus(1),
        program("remote", Place::Ferry(REMOTE), &["trap"]),
        program("posted", Place::Ferry(REMOTE), &["post"]),
        program("linux", Place::Peer(""), &["trap"]),
    ],
    cases: CASES.as_flattened().as_flattened(),
    ..Suite::EMPTY
};
