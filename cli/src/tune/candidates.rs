//! What can be tried: cores for programs and for calls, a path, a lock scheme.

use std::path::Path;

use abi::trace::LockScheme;
use anyhow::Result;
use policy::place::CoreSet;
use sim::configuration::{Ferry, LockName, PathName};

use crate::run::{Arguments, CallPath};

/// One way to set a machine up.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    cores: usize,
    path: CallPath,
    /// Cores of programs and of calls; none: as the kernel chooses them.
    sets: Option<(CoreSet, CoreSet)>,
    locks: LockScheme,
}

/// Everything that a machine with so many cores allows: the kernel's own choice; all calls at home on all
/// cores; remote and posted calls with one kernel core and more, up to half of the cores; each with every
/// lock scheme.
pub fn all(cores: usize) -> Vec<Candidate> {
    let every = CoreSet::first(cores);
    let mut ways = vec![(CallPath::Auto, None), (CallPath::Local, Some((every, every)))];
    for kernel in 1..=cores / 2 {
        let programs = CoreSet::first(cores - kernel);
        let sets = Some((programs, CoreSet(every.0 & !programs.0)));
        ways.extend([(CallPath::Remote, sets), (CallPath::Posted, sets)]);
    }
    let with_locks = |(path, sets)| {
        LockScheme::ALL.into_iter().map(move |locks| Candidate { cores, path, sets, locks })
    };
    ways.into_iter().flat_map(with_locks).collect()
}

impl Candidate {
    /// What options ask for.
    pub fn of(options: &Arguments) -> Result<Candidate> {
        let layout = options.layout()?;
        let is_chosen = options.path == CallPath::Auto
            && options.app_cores.is_none()
            && options.kernel_cores.is_none();
        Ok(Candidate {
            cores: options.cpus,
            path: options.path,
            sets: (!is_chosen).then_some((layout.application, layout.kernel)),
            locks: options.locks,
        })
    }

    /// Makes options ask for it.
    pub fn apply(&self, options: &mut Arguments) {
        options.cpus = self.cores;
        options.path = self.path;
        options.app_cores = self.sets.map(|(programs, _)| programs);
        options.kernel_cores = self.sets.map(|(_, kernel)| kernel);
        options.interrupt_cores = None;
        options.locks = self.locks;
    }

    /// What the simulator is to do.
    pub fn configuration(&self, trace: &Path) -> Ferry {
        let list = |set: CoreSet| set.iter().collect::<Vec<_>>();
        Ferry {
            trace: trace.to_path_buf(),
            cores: self.cores,
            application_cores: self.sets.map(|(programs, _)| list(programs)),
            kernel_cores: self.sets.map(|(_, kernel)| list(kernel)),
            interrupt_cores: None,
            path: match self.path {
                CallPath::Auto => PathName::Auto,
                CallPath::Local => PathName::Local,
                CallPath::Remote => PathName::Remote,
                CallPath::Posted => PathName::Posted,
            },
            locks: LockName::of(self.locks),
            costs: sim::configuration::CostsInNanoseconds::default(),
        }
    }

    /// For people: as options of `ferry run`.
    pub fn describe(&self) -> String {
        let path = format!("{:?}", self.path).to_lowercase();
        let mut text = format!("--cpus {} --path {path}", self.cores);
        if let Some((programs, kernel)) = self.sets {
            let list = |set: CoreSet| {
                let cores: Vec<String> = set.iter().map(|core| core.to_string()).collect();
                cores.join(",")
            };
            text += &format!(" --app-cores {} --kernel-cores {}", list(programs), list(kernel));
        }
        if self.locks != LockScheme::Fine {
            text += &format!(" --locks {}", self.locks.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_can_be_simulated_and_said() {
        for cores in [1, 2, 8, 64] {
            let candidates = all(cores);
            assert_eq!(candidates.len(), (2 + cores / 2 * 2) * LockScheme::ALL.len());
            for candidate in &candidates {
                let layout = candidate.configuration(Path::new("a")).layout().unwrap();
                assert!(layout.application.count() + layout.kernel.count() >= cores);
            }
        }
        assert!(all(2).iter().any(|candidate| candidate.describe()
            == "--cpus 2 --path posted --app-cores 0 --kernel-cores 1 --locks giant-mcs"));
    }
}
