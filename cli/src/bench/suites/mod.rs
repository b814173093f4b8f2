//! The suites, one file each.

mod apps;
mod boot;
mod concurrency;
mod idle;
mod locks;
mod memsc;
mod micro;
mod noise;
mod null;
mod offload;
mod posted;
mod stages;

use super::suite::Suite;

/// All of them, in the order of `--list`.
pub static SUITES: &[&Suite] = &[
    &null::SUITE,
    &micro::SUITE,
    &posted::SUITE,
    &boot::SUITE,
    &idle::SUITE,
    &memsc::SUITE,
    &stages::SUITE,
    &offload::SUITE,
    &concurrency::SUITE,
    &apps::SUITE,
    &noise::SUITE,
    &locks::SUITE,
];

/// The suite of this name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().copied().find(|suite| suite.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::modelled::MODEL;
    use crate::bench::outcome::side;
    use crate::bench::suite::Case;

    #[test]
    fn every_figure_of_a_case_comes_from_a_run() {
        for suite in SUITES {
            let known = |figure: &str| {
                let side = side(figure).trim_end_matches(MODEL);
                suite.runs.iter().any(|run| run.side == side)
            };
            let curves = suite.curves.iter().map(|curve| &curve.case);
            for Case { name, ferry, peer, counters, .. } in suite.cases.iter().chain(curves) {
                assert!(known(ferry), "{}: {name}: {ferry}", suite.name);
                assert!(peer.is_empty() || known(peer), "{}: {name}: {peer}", suite.name);
                assert!(counters.iter().all(|counter| known(counter)), "{}: {name}", suite.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_sources_are_there() {
        for suite in SUITES {
            assert_eq!(find(suite.name).unwrap().about, suite.about);
            for (at, case) in suite.cases.iter().enumerate() {
                assert!(suite.cases[..at].iter().all(|other| other.name != case.name));
            }
            for source in suite.sources {
                let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
                assert!(root.join(source).exists(), "{source}");
            }
        }
    }
}
