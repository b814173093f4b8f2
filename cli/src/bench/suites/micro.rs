//! One call or a short sequence of calls per case, beside Linux: time, and instructions per operation as
//! the model counts them, which do not depend on the host. The guest program is `bench/guest/micro.c`.

use crate::bench::suite::{Case, Place, Suite, Target, case, program};

/// Each side under the model: all cases once; the null call alone; posted with libferry.
const FEW: &[&str] = &["few"];
const FEW_CALLS: &[&str] = &["few", "calls"];
const FEW_POSTED: &[&str] = &["few", "post"];

/// The cases of one operation: its region of the model, its name, its figure, and how much of Linux's
/// time it may take.
macro_rules! operations {
    ($(($region:literal, $name:literal, $figure:literal, $most:literal)),* $(,)?) => {
        [$([
            case(
                $name,
                "ns",
                concat!("auto ", $figure),
                concat!("linux ", $figure),
                $most,
            ),
            case(
                concat!($name, ", local"),
                "ns",
                concat!("local ", $figure),
                concat!("linux ", $figure),
                $most,
            ),
            case(
                concat!($name, ", modelled instructions"),
                "",
                concat!("local@model ", $region, ".all.busy_per_call"),
                concat!("linux@model ", $region, ".all.busy_per_call"),
                1.0,
            )
            .informs(),
        ]),*]
    };
}

const OPERATIONS: [[Case; 3]; 27] = operations![
    (1, "getppid", "getppid", 0.6),
    (2, "clock_gettime", "clock_gettime", 0.6),
    (3, "read of 1 byte", "read_1", 0.6),
    (4, "write of 1 byte", "write_1", 0.6),
    (5, "open, close", "open_close", 0.6),
    (6, "stat", "stat", 0.6),
    (7, "fstat", "fstat", 0.6),
    (8, "pread of 4 KiB", "pread_4k", 0.6),
    (9, "pwrite of 4 KiB", "pwrite_4k", 0.6),
    (10, "fcntl lock, unlock", "fcntl_lock", 0.6),
    (11, "create, delete", "create_delete", 0.6),
    (12, "select of 10 files", "select_10", 0.8),
    (13, "select of 100 files", "select_100", 0.8),
    (14, "poll of 10 files", "poll_10", 0.8),
    (15, "poll of 100 files", "poll_100", 0.8),
    (16, "sigaction", "sigaction", 0.8),
    (17, "signal delivery", "signal", 0.8),
    (18, "futex wake", "futex_wake", 0.6),
    (19, "mmap, munmap", "mmap_munmap", 0.8),
    (20, "page fault", "page_fault", 0.8),
    (21, "pipe, 64 KiB", "pipe_64k", 0.8),
    (22, "round trip by pipes", "pipe_round_trip", 0.8),
    (23, "round trip by AF_UNIX", "unix_round_trip", 0.8),
    (24, "thread create, join", "thread_create", 0.8),
    (25, "fork, exit, wait", "fork_exit", 0.8),
    (26, "fork, exec, wait", "fork_exec", 0.8),
    (27, "epoll_wait, 10 of 1000", "epoll_wait_1000", 0.8),
];

/// Ferry's own paths of the null call, in counts.
const fn counted(name: &'static str, figure: &'static str, most: f64) -> Case {
    case(name, "", figure, "", 0.0).wants(Target::ValueAtMost(most))
}

const PATHS: [Case; 9] = [
    counted("getppid, remote: modelled instructions", "remote@model 1.all.busy_per_call", 300.0),
    counted("getppid, remote: modelled lines", "remote@model 1.all.coherence_per_call", 4.0),
    counted("posted, one: modelled, user", "post@model 28.all.user_per_call", 0.0).informs(),
    counted("posted, one: modelled, kernel", "post@model 28.all.busy_kernel_per_call", 60.0),
    counted("posted, one: modelled lines", "post@model 28.all.coherence_per_call", 4.0).informs(),
    counted("posted, 64: modelled, user", "post@model 29.all.user_per_call", 20.0),
    counted("posted, 64: modelled, kernel", "post@model 29.all.busy_kernel_per_call", 40.0),
    counted("posted, 64: modelled lines", "post@model 29.all.coherence_per_call", 4.0).informs(),
    case("getppid, remote", "ns", "remote getppid", "linux getppid", 1.5),
];

const COUNT: usize = OPERATIONS.as_flattened().len() + PATHS.len();

/// All operations, then the paths.
const CASES: [Case; COUNT] = {
    let mut cases = [PATHS[0]; COUNT];
    let operations = OPERATIONS.as_flattened();
    let mut at = 0;
    while at < COUNT {
        cases[at] =
            if at < operations.len() { operations[at] } else { PATHS[at - operations.len()] };
        at += 1;
    }
    cases
};

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "micro",
    about: "single calls: files, select and poll, signals, memory, pipes, sockets, processes",
    sources: &["bench/guest/micro.c", "user/c/src/ferry.c"],
    headers: &["bench/guest", "user/c"],
    deadline_s: 120,
    runs: &[
        program("auto", Place::Ferry("auto"), &[]),
        program("local", Place::Ferry("local"), &[]).modelled(FEW),
        program("linux", Place::Peer(""), &[]).modelled(FEW),
        program("remote", Place::Ferry("remote"), &["calls"]).modelled(FEW_CALLS),
        program("post", Place::Ferry("remote"), &["post"]).modelled(FEW_POSTED),
    ],
    cases: &CASES,
    ..Suite::EMPTY
};
