//! The experiments of Memsc: getppid in rows and batches, by several applications and threads, and the
//! work of unmodified programs. The guest program is `bench/guest/memsc.c`.
//!
//! `post` is libferry on the path `remote`; `posted` is the loop of traps as an ordinary program has it,
//! on the path of that name; `local` has one core for everything. Batches mean nothing to traps: beside
//! each stands the same row of 100,000.

use crate::bench::suite::{Case, Curve, Place, Suite, case, program};

const ROWS: &[u32] = &[1, 10, 100, 1_000, 10_000, 100_000];
const BATCHES: &[u32] = &[1, 2, 3, 4, 8, 16, 32, 64];
const APPLICATIONS: &[u32] = &[1, 2];
const THREADS: &[u32] = &[4, 6, 8];
const DD_KIB: &[u32] = &[64, 1024, 4096, 16384];
const LS_FILES: &[u32] = &[100, 1000, 5000, 15000];

const BATCHES_PAPER: &[&str] = &[
    "Memsc: 11639 ns",
    "Memsc: 11954 ns",
    "Memsc: 8556 ns",
    "Memsc: 3006 ns",
    "Memsc: 1955 ns",
    "Memsc: 1145 ns",
    "Memsc: 823 ns",
    "Memsc: 770 ns",
];
const APPLICATIONS_PAPER: &[&str] = &[
    "Memsc: 0.133 M/s",
    "Memsc: 0.136 M/s",
    "Memsc: 0.198 M/s",
    "Memsc: 0.485 M/s",
    "Memsc: 0.603 M/s",
    "Memsc: 1.037 M/s",
    "Memsc: 1.601 M/s",
    "Memsc: 2.205 M/s",
];
const ROW_PAPER: &str = "Memsc, 100,000 calls: Linux 256 ns, L4Linux 3424, decoupled 27052";
const TWO_PAPER: &str = "Memsc: two applications 0.290 M/s, decoupled without posting 0.037";
const DD_PAPER: &str = "Memsc: 1.76 times as fast as decoupled without posting";
const LS_PAPER: &str = "Memsc: 1.31 to 1.43 times as fast as decoupled without posting";

const fn row(name: &'static str, ferry: &'static str) -> Curve {
    let case = case(name, "ns", ferry, "linux row_{}", 1.0).paper(ROW_PAPER);
    Curve { plot: "getppid, one at a time", x: "calls", values: ROWS, case }
}

const fn batches(name: &'static str, ferry: &'static str, peer: &'static str) -> Curve {
    let case = case(name, "ns", ferry, peer, 1.0);
    Curve { plot: "getppid in batches", x: "calls per batch", values: BATCHES, case }
}

const fn together(
    plot: &'static str,
    x: &'static str,
    values: &'static [u32],
    name: &'static str,
    ferry: &'static str,
    peer: &'static str,
) -> Curve {
    let case = case(name, "", ferry, peer, 0.0).rate(1.0).informs();
    Curve { plot, x, values, case }
}

const fn applications(name: &'static str, ferry: &'static str) -> Curve {
    together(
        "getppid by several applications",
        "applications",
        APPLICATIONS,
        name,
        ferry,
        "linux applications_{}",
    )
}

const fn threads(name: &'static str, ferry: &'static str) -> Curve {
    together("getppid by several threads", "threads", THREADS, name, ferry, "linux threads_{}")
}

const fn work(plot: &'static str, x: &'static str, values: &'static [u32], case: Case) -> Curve {
    Curve { plot, x, values, case }
}

const fn dd(name: &'static str, ferry: &'static str) -> Curve {
    let case = case(name, "ms", ferry, "linux dd_{}", 0.7);
    work("dd bs=512", "KiB", DD_KIB, case)
}

const fn ls(name: &'static str, ferry: &'static str) -> Curve {
    let case = case(name, "ms", ferry, "linux ls_{}", 0.8);
    work("ls -l", "files", LS_FILES, case)
}

/// The same posted batches in a plot of their own, beside Ferry's own traps.
const fn own_traps(mut curve: Curve) -> Curve {
    curve.plot = "getppid in batches, beside Ferry's own traps";
    curve
}

const fn informs(mut curve: Curve) -> Curve {
    curve.case = curve.case.informs();
    curve
}

const fn papers(mut curve: Curve, papers: &'static [&'static str]) -> Curve {
    curve.case = curve.case.papers(papers);
    curve
}

const fn ahead_from(mut curve: Curve, most: f64) -> Curve {
    curve.case = curve.case.ahead_from(most);
    curve
}

const fn paper(mut curve: Curve, paper: &'static str) -> Curve {
    curve.case = curve.case.paper(paper);
    curve
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "memsc",
    about: "getppid in rows, batches, processes and threads; dd and ls; beside Linux and io_uring",
    sources: &["bench/guest/memsc.c", "user/c/src/ferry.c"],
    headers: &["bench/guest", "user/c"],
    deadline_s: 150,
    runs: &[
        program("post", Place::Ferry("remote"), &["post"]),
        program("linux", Place::Peer(""), &[]),
        program("posted", Place::Ferry("posted"), &["trap"]),
        program("remote", Place::Ferry("remote"), &["trap"]),
        program("local", Place::Ferry("local"), &["trap"]).cpus(1),
    ],
    curves: &[
        row("library", "post row_{}"),
        row("unmodified, posted", "posted row_{}"),
        informs(row("remote", "remote row_{}")),
        informs(row("local", "local row_{}")),
        papers(batches("posted / Linux", "post batch_{}", "linux row_100000"), BATCHES_PAPER),
        informs(batches("posted / io_uring", "post batch_{}", "linux uring_batch_{}")),
        informs(batches("posted / io_uring polled", "post batch_{}", "linux polled_batch_{}")),
        own_traps(ahead_from(
            batches("posted / Ferry local", "post batch_{}", "local row_100000"),
            1.0,
        )),
        own_traps(informs(batches("posted / Ferry remote", "post batch_{}", "remote row_100000"))),
        papers(
            together(
                "two applications in batches",
                "calls per batch",
                BATCHES,
                "two applications / Linux",
                "post applications_2_batch_{}",
                "linux applications_2",
            ),
            APPLICATIONS_PAPER,
        ),
        paper(
            applications("applications, batches of 64", "post applications_{}_batch_64"),
            TWO_PAPER,
        ),
        applications("applications, batches of 1", "post applications_{}_batch_1"),
        applications("applications, unmodified, posted", "posted applications_{}"),
        applications("applications, remote", "remote applications_{}"),
        applications("applications, local", "local applications_{}"),
        threads("threads, batches of 64", "post threads_{}_batch_64"),
        threads("threads, batches of 1", "post threads_{}_batch_1"),
        threads("threads, unmodified, posted", "posted threads_{}"),
        threads("threads, remote", "remote threads_{}"),
        threads("threads, local", "local threads_{}"),
        paper(dd("dd, posted", "posted dd_{}"), DD_PAPER),
        informs(dd("dd, remote", "remote dd_{}")),
        informs(dd("dd, local", "local dd_{}")),
        paper(ls("ls -l, posted", "posted ls_{}"), LS_PAPER),
        informs(ls("ls -l, remote", "remote ls_{}")),
        informs(ls("ls -l, local", "local ls_{}")),
    ],
    ..Suite::EMPTY
};
