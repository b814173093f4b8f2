//! Lock schemes: what a lock costs alone, and what processes that call at the same time get done on one
//! processor and on two. The guest program is `bench/guest/locks.c`, the native one
//! `base/examples/locks.rs`. Calls are local: each processor carries out its own, so that the lock is what
//! they share. What to compare with is the fine scheme, in the same run. `--model` counts instructions of
//! null calls under each scheme and with a trace.

use crate::bench::suite::{Case, Place, Suite, Target, What, case, program, run};

const ROUNDS: &[&str] = &["5"];
const FEW: &[&str] = &["1", "few"];

const ONE_PLAIN: &str = "Giant lock: 78 cycles without a lock, 328 with (ARM, 399 MHz)";
const TWO_NULL: &str = "Giant lock: 684 cycles per call on 2 cores, 2.08 times one core's";

/// A load, beside the like; without a target.
const fn one(name: &'static str, ferry: &'static str, fine: &'static str) -> Case {
    case(name, "ns", ferry, fine, 1.0).informs()
}

/// See the top of the file.
pub static SUITE: Suite = Suite {
    name: "locks",
    about: "lock schemes: a lock alone, and loads on one and two processors under each scheme",
    sources: &["bench/guest/locks.c"],
    runs: &[
        run("host", Place::Host, What::Example("locks", ROUNDS)),
        program("fine1", Place::Ferry("local"), &["1"]).cpus(1).modelled(FEW),
        program("traced1", Place::Ferry("local --trace /dev/null"), &["1"]).cpus(1).modelled(FEW),
        program("coarse1", Place::Ferry("local --locks coarse"), &["1"]).cpus(1).modelled(FEW),
        program("ticket1", Place::Ferry("local --locks giant-ticket"), &["1"])
            .cpus(1)
            .modelled(FEW),
        program("clh1", Place::Ferry("local --locks giant-clh"), &["1"]).cpus(1).modelled(FEW),
        program("mcs1", Place::Ferry("local --locks giant-mcs"), &["1"]).cpus(1).modelled(FEW),
        program("fine2", Place::Ferry("local"), &["2"]).cpus(2),
        program("coarse2", Place::Ferry("local --locks coarse"), &["2"]).cpus(2),
        program("ticket2", Place::Ferry("local --locks giant-ticket"), &["2"]).cpus(2),
        program("clh2", Place::Ferry("local --locks giant-clh"), &["2"]).cpus(2),
        program("mcs2", Place::Ferry("local --locks giant-mcs"), &["2"]).cpus(2),
    ],
    cases: &[
        one("null, 1 processor, traced", "traced1 null", "fine1 null"),
        one("mixed, 1 processor, traced", "traced1 mixed", "fine1 mixed"),
        case("ticket lock, free, natively", "ns", "host ticket_free", "", 0.0).informs(),
        case("clh lock, free, natively", "ns", "host clh_free", "", 0.0).informs(),
        case("mcs lock, free, natively", "ns", "host mcs_free", "", 0.0).informs(),
        case(
            "ticket lock, two threads, natively",
            "ns",
            "host ticket_contended",
            "host ticket_free",
            0.0,
        )
        .informs(),
        case("clh lock, two threads, natively", "ns", "host clh_contended", "host clh_free", 0.0)
            .informs(),
        case("mcs lock, two threads, natively", "ns", "host mcs_contended", "host mcs_free", 0.0)
            .informs(),
        case("trace record, natively", "ns", "host record", "", 0.0)
            .wants(Target::ValueAtMost(7.0)),
        one("null, 1 processor, coarse", "coarse1 null", "fine1 null"),
        one("null, 1 processor, giant-ticket", "ticket1 null", "fine1 null").paper(ONE_PLAIN),
        one("null, 1 processor, giant-clh", "clh1 null", "fine1 null"),
        one("null, 1 processor, giant-mcs", "mcs1 null", "fine1 null"),
        one("null, 2 processors, coarse", "coarse2 null", "fine2 null"),
        one("null, 2 processors, giant-ticket", "ticket2 null", "fine2 null").paper(TWO_NULL),
        one("null, 2 processors, giant-clh", "clh2 null", "fine2 null"),
        one("null, 2 processors, giant-mcs", "mcs2 null", "fine2 null"),
        one("null, fine, 2 processors over 1", "fine2 null", "fine1 null"),
        one("null, giant-ticket, 2 processors over 1", "ticket2 null", "ticket1 null"),
        one("file, 1 processor, coarse", "coarse1 file", "fine1 file"),
        one("file, 1 processor, giant-ticket", "ticket1 file", "fine1 file"),
        one("file, 1 processor, giant-clh", "clh1 file", "fine1 file"),
        one("file, 1 processor, giant-mcs", "mcs1 file", "fine1 file"),
        one("file, 2 processors, coarse", "coarse2 file", "fine2 file"),
        one("file, 2 processors, giant-ticket", "ticket2 file", "fine2 file"),
        one("file, 2 processors, giant-clh", "clh2 file", "fine2 file"),
        one("file, 2 processors, giant-mcs", "mcs2 file", "fine2 file"),
        one("file, fine, 2 processors over 1", "fine2 file", "fine1 file"),
        one("file, giant-ticket, 2 processors over 1", "ticket2 file", "ticket1 file"),
        one("mixed, 1 processor, coarse", "coarse1 mixed", "fine1 mixed"),
        one("mixed, 1 processor, giant-ticket", "ticket1 mixed", "fine1 mixed"),
        one("mixed, 1 processor, giant-clh", "clh1 mixed", "fine1 mixed"),
        one("mixed, 1 processor, giant-mcs", "mcs1 mixed", "fine1 mixed"),
        one("mixed, 2 processors, coarse", "coarse2 mixed", "fine2 mixed"),
        one("mixed, 2 processors, giant-ticket", "ticket2 mixed", "fine2 mixed"),
        one("mixed, 2 processors, giant-clh", "clh2 mixed", "fine2 mixed"),
        one("mixed, 2 processors, giant-mcs", "mcs2 mixed", "fine2 mixed"),
        one("mixed, fine, 2 processors over 1", "fine2 mixed", "fine1 mixed"),
        one("mixed, giant-ticket, 2 processors over 1", "ticket2 mixed", "ticket1 mixed"),
        one("loose, 1 processor, coarse", "coarse1 loose", "fine1 loose"),
        one("loose, 1 processor, giant-ticket", "ticket1 loose", "fine1 loose"),
        one("loose, 1 processor, giant-clh", "clh1 loose", "fine1 loose"),
        one("loose, 1 processor, giant-mcs", "mcs1 loose", "fine1 loose"),
        one("loose, 2 processors, coarse", "coarse2 loose", "fine2 loose"),
        one("loose, 2 processors, giant-ticket", "ticket2 loose", "fine2 loose"),
        one("loose, 2 processors, giant-clh", "clh2 loose", "fine2 loose"),
        one("loose, 2 processors, giant-mcs", "mcs2 loose", "fine2 loose"),
        one("loose, fine, 2 processors over 1", "fine2 loose", "fine1 loose"),
        one("loose, giant-ticket, 2 processors over 1", "ticket2 loose", "ticket1 loose"),
        one("twolf, 1 processor, coarse", "coarse1 twolf", "fine1 twolf"),
        one("twolf, 1 processor, giant-ticket", "ticket1 twolf", "fine1 twolf"),
        one("twolf, 1 processor, giant-clh", "clh1 twolf", "fine1 twolf"),
        one("twolf, 1 processor, giant-mcs", "mcs1 twolf", "fine1 twolf"),
        one("twolf, 2 processors, coarse", "coarse2 twolf", "fine2 twolf"),
        one("twolf, 2 processors, giant-ticket", "ticket2 twolf", "fine2 twolf"),
        one("twolf, 2 processors, giant-clh", "clh2 twolf", "fine2 twolf"),
        one("twolf, 2 processors, giant-mcs", "mcs2 twolf", "fine2 twolf"),
        one("twolf, fine, 2 processors over 1", "fine2 twolf", "fine1 twolf"),
        one("twolf, giant-ticket, 2 processors over 1", "ticket2 twolf", "ticket1 twolf"),
        one("eon, 1 processor, coarse", "coarse1 eon", "fine1 eon"),
        one("eon, 1 processor, giant-ticket", "ticket1 eon", "fine1 eon"),
        one("eon, 1 processor, giant-clh", "clh1 eon", "fine1 eon"),
        one("eon, 1 processor, giant-mcs", "mcs1 eon", "fine1 eon"),
        one("eon, 2 processors, coarse", "coarse2 eon", "fine2 eon"),
        one("eon, 2 processors, giant-ticket", "ticket2 eon", "fine2 eon"),
        one("eon, 2 processors, giant-clh", "clh2 eon", "fine2 eon"),
        one("eon, 2 processors, giant-mcs", "mcs2 eon", "fine2 eon"),
        one("eon, fine, 2 processors over 1", "fine2 eon", "fine1 eon"),
        one("eon, giant-ticket, 2 processors over 1", "ticket2 eon", "ticket1 eon"),
    ],
    ..Suite::EMPTY
};
