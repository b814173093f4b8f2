//! What a suite is: data. What is run where, and what is made of the figures.
//!
//! A new suite is one file in `suites/` and its guest program in `bench/guest`.

/// A set of cases that share one guest program.
pub struct Suite {
    /// How it is called on the command line.
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// The guest program's C files, from the root of the source tree.
    pub sources: &'static [&'static str],
    /// Folders with its headers, likewise.
    pub headers: &'static [&'static str],
    /// Virtual CPUs on both sides, unless the user or a run says otherwise.
    pub cpus: u32,
    /// A run never takes longer than so many seconds.
    pub deadline_s: u64,
    /// What one repeat runs, in this order.
    pub runs: &'static [Run],
    /// What is reported.
    pub cases: &'static [Case],
    /// What is reported as a function of something, after the cases.
    pub curves: &'static [Curve],
}

impl Suite {
    /// A suite without anything; what is missing is said with `..Suite::EMPTY`.
    pub const EMPTY: Suite = Suite {
        name: "",
        about: "",
        sources: &[],
        headers: &["bench/guest"],
        cpus: 2,
        deadline_s: 90,
        runs: &[],
        cases: &[],
        curves: &[],
    };
}

/// One boot, or one run on the host.
pub struct Run {
    /// Its figures are named `SIDE FIGURE`.
    pub side: &'static str,
    /// Where.
    pub place: Place,
    /// What.
    pub what: What,
    /// Virtual CPUs, where that is what the run is about.
    pub cpus: Option<u32>,
    /// In the first repeat only: it takes long, or cannot differ.
    pub is_once: bool,
    /// Arguments of the guest program for the run with the model, where they are others: that machine
    /// is several times slower.
    pub modelled: Option<&'static [&'static str]>,
}

/// Where something runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Ferry in QEMU, on this call path; more words are options of `ferry run`.
    Ferry(&'static str),
    /// The peer in QEMU, with these words on its kernel's command line.
    Peer(&'static str),
    /// The host itself.
    Host,
}

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The guest program with these arguments; on the peer it is process 1.
    Program(&'static [&'static str]),
    /// The guest program, whose argument is the program's name, with that program in its root.
    App(&'static App),
    /// `true`, from the start of QEMU to its end: one figure, `wall`, in milliseconds.
    WallOfTrue,
    /// The guest program, which prints `asleep` and then sleeps for 10 s. A figure more, `host_cpu`: how
    /// much of one of the host's processors the virtual machine takes meanwhile, in percent.
    Asleep,
    /// What is booted, without booting it: one figure, `image`, in MiB, with its parts as counters.
    ImageSize,
    /// `busybox echo` with less and less memory: one figure, `least_memory`, in MiB.
    LeastMemory,
    /// An example of the crate `base`, on the host, with these arguments.
    Example(&'static str, &'static [&'static str]),
}

/// A program of the host that both kernels run.
#[derive(PartialEq, Eq)]
pub struct App {
    /// Its name.
    pub name: &'static str,
    /// Debian's package that has it.
    pub package: &'static str,
    /// A shell script, run at the root of the source tree, that prints what the program needs, a line
    /// each: files or folders of the host, as `HOST[:GUEST]`. Libraries are found without it.
    pub files: &'static str,
}

/// What is reported, and from which figures.
///
/// Figures named `SIDE FIGURE.WHAT` are counters of the case by themselves.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Unit of both figures.
    pub unit: &'static str,
    /// Figure of Ferry: `SIDE FIGURE`.
    pub ferry: &'static str,
    /// Figure to compare with; empty where there is nothing to compare with.
    pub peer: &'static str,
    /// The figures are nanoseconds per operation; what is reported is millions per second.
    pub is_rate: bool,
    /// What Ferry wants.
    pub target: Target,
    /// Figures that belong to the case, shown beside.
    pub counters: &'static [&'static str],
    /// What a paper reports for the like.
    pub paper: Option<&'static str>,
    /// The same for each value of a curve, where it has one.
    pub papers: &'static [&'static str],
    /// On a curve: Ferry wants to be ahead from this value on.
    pub ahead_from: Option<f64>,
}

/// One case for each of some values of something, drawn as a plot. `{}` in the names of the figures
/// stands for the value.
pub struct Curve {
    /// Title of the plot; curves with the same one are drawn into it together.
    pub plot: &'static str,
    /// What is varied, with its unit if it has one.
    pub x: &'static str,
    /// The values.
    pub values: &'static [u32],
    /// What each value gives; its name is followed by the value.
    pub case: Case,
}

/// What Ferry wants of a case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// Ferry over peer.
    RatioAtMost(f64),
    /// Ferry over peer.
    RatioAtLeast(f64),
    /// Ferry's figure itself.
    ValueAtMost(f64),
    /// Ferry's figure itself.
    ValueAtLeast(f64),
    /// Nothing: the figures are for information.
    Nothing,
}

impl Target {
    /// The bound, where there is one.
    pub fn bound(self) -> Option<f64> {
        match self {
            Target::RatioAtMost(bound)
            | Target::RatioAtLeast(bound)
            | Target::ValueAtMost(bound)
            | Target::ValueAtLeast(bound) => Some(bound),
            Target::Nothing => None,
        }
    }

    /// What has to be how large.
    pub fn relation(self) -> &'static str {
        match self {
            Target::RatioAtMost(_) => "ratio <=",
            Target::RatioAtLeast(_) => "ratio >=",
            Target::ValueAtMost(_) => "value <=",
            Target::ValueAtLeast(_) => "value >=",
            Target::Nothing => "",
        }
    }

    /// Whether it is met; `None` when it was not measured.
    pub fn is_met(self, value: Option<f64>, ratio: Option<f64>) -> Option<bool> {
        match self {
            Target::RatioAtMost(bound) => ratio.map(|ratio| ratio <= bound),
            Target::RatioAtLeast(bound) => ratio.map(|ratio| ratio >= bound),
            Target::ValueAtMost(bound) => value.map(|value| value <= bound),
            Target::ValueAtLeast(bound) => value.map(|value| value >= bound),
            Target::Nothing => None,
        }
    }
}

/// A run of the guest program.
pub const fn program(side: &'static str, place: Place, arguments: &'static [&'static str]) -> Run {
    run(side, place, What::Program(arguments))
}

/// A run of something else than the guest program.
pub const fn run(side: &'static str, place: Place, what: What) -> Run {
    Run { side, place, what, cpus: None, is_once: false, modelled: None }
}

impl Run {
    /// With so many virtual CPUs, whatever the suite has.
    pub const fn cpus(mut self, cpus: u32) -> Run {
        self.cpus = Some(cpus);
        self
    }

    /// With these arguments when it runs with the model of caches and TLBs.
    pub const fn modelled(mut self, arguments: &'static [&'static str]) -> Run {
        self.modelled = Some(arguments);
        self
    }

    /// In the first repeat only.
    pub const fn once(mut self) -> Run {
        self.is_once = true;
        self
    }
}

/// A case that wants a ratio of at most so much.
pub const fn case(
    name: &'static str,
    unit: &'static str,
    ferry: &'static str,
    peer: &'static str,
    most: f64,
) -> Case {
    let target = Target::RatioAtMost(most);
    Case {
        name,
        unit,
        ferry,
        peer,
        is_rate: false,
        target,
        counters: &[],
        paper: None,
        papers: &[],
        ahead_from: None,
    }
}

impl Case {
    /// Per second instead of nanoseconds, and at least so many times the peer's.
    pub const fn rate(mut self, least: f64) -> Case {
        self.is_rate = true;
        self.unit = "M/s";
        self.target = Target::RatioAtLeast(least);
        self
    }

    /// Without a target.
    pub const fn informs(mut self) -> Case {
        self.target = Target::Nothing;
        self
    }

    /// With another target.
    pub const fn wants(mut self, target: Target) -> Case {
        self.target = target;
        self
    }

    /// With figures beside.
    pub const fn beside(mut self, counters: &'static [&'static str]) -> Case {
        self.counters = counters;
        self
    }

    /// With what a paper says.
    pub const fn paper(mut self, paper: &'static str) -> Case {
        self.paper = Some(paper);
        self
    }

    /// With what a paper says for each value of a curve, in their order.
    pub const fn papers(mut self, papers: &'static [&'static str]) -> Case {
        self.papers = papers;
        self
    }

    /// With one more line after a curve: the least value from which on Ferry is ahead at all of them,
    /// which has to be at most so much.
    pub const fn ahead_from(mut self, most: f64) -> Case {
        self.ahead_from = Some(most);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_meets_the_target_and_nothing_measured_is_neither() {
        assert_eq!(Target::RatioAtMost(0.5).is_met(None, Some(0.5)), Some(true));
        assert_eq!(Target::RatioAtMost(0.5).is_met(None, Some(0.51)), Some(false));
        assert_eq!(Target::RatioAtLeast(8.0).is_met(None, Some(7.9)), Some(false));
        assert_eq!(Target::ValueAtMost(0.0).is_met(Some(0.0), None), Some(true));
        assert_eq!(Target::ValueAtLeast(0.9).is_met(Some(0.8), Some(1.0)), Some(false));
        assert_eq!(Target::ValueAtLeast(0.9).is_met(None, Some(1.0)), None);
    }
}
