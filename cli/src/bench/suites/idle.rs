//! What a virtual machine costs the host while the guest sleeps. The guest program is
//! `bench/guest/idle.c`; `host_cpu.rs` measures.

use crate::bench::suite::{Case, Place, Suite, Target, What, case, run};

/// Percent of one of the host's processors.
const MOST: Target = Target::ValueAtMost(5.0);

const fn asleep(name: &'static str, side: &'static str) -> Case {
    case(name, "%", side, "linux host_cpu", 0.0).wants(MOST)
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "idle",
    about: "the host's processor time that a machine takes while its guest sleeps",
    sources: &["bench/guest/idle.c"],
    deadline_s: 60,
    runs: &[
        run("remote", Place::Ferry("remote"), What::Asleep),
        run("posted", Place::Ferry("posted"), What::Asleep),
        run("linux", Place::Peer(""), What::Asleep),
    ],
    cases: &[
        asleep("host's processor, remote", "remote host_cpu"),
        asleep("host's processor, posted", "posted host_cpu"),
    ],
    ..Suite::EMPTY
};
