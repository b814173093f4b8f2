//! The model of caches and TLBs, as a plugin of QEMU (`docs/model.md`): building it, handing it to a
//! machine, and reading what it counted.
//!
//! The plugin is a file of its own that QEMU loads; the tool shares only the form of the report with it.

mod functions;
mod plugin;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::status::Usage;
pub use functions::Function;
use model::decode::has_marker;
use model::{FORMAT, Report, Sizes};

/// What a run of a machine with the model yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modelled {
    /// What the plugin wrote.
    #[serde(flatten)]
    pub report: Report,
    /// Its hot spots by function, the most instructions first.
    #[serde(default)]
    pub functions: Vec<Function>,
}

/// A model that is ready for one run of a machine.
pub struct Model {
    plugin: PathBuf,
    out: PathBuf,
    options: Vec<String>,
}

impl Model {
    /// Builds the plugin if need be. What is counted goes to `out`. `program` is the file of the
    /// program, where there is one: if it has a marker, nothing counts before the marker is met.
    pub fn prepare(out: &Path, options: &[String], program: Option<&Path>) -> Result<Model> {
        let mut sizes = Sizes::default();
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let is_known = sizes.apply(name, value).map_err(|error| Usage(error.to_string()))?;
            if !is_known {
                let text = format!(
                    "the model has no size {name:?}; there are l1i, l1d, l2, llc, dtlb, \
                     dtlb-large, itlb, itlb-large, stlb and kernel-page"
                );
                return Err(Usage(text).into());
            }
        }
        let out = std::path::absolute(out)?;
        // What an earlier run left must not be taken for this one's.
        std::fs::write(&out, "").with_context(|| format!("cannot write {}", out.display()))?;
        let mut options = options.to_vec();
        let is_marked = |program: &Path| std::fs::read(program).is_ok_and(|file| has_marker(&file));
        if program.is_some_and(is_marked) {
            options.push("region=marked".to_owned());
        }
        Ok(Model { plugin: plugin::build()?, out, options })
    }

    /// What QEMU's option `-plugin` gets.
    pub fn argument(&self) -> String {
        let escaped = |path: &Path| path.to_string_lossy().replace(',', ",,");
        let mut argument = format!("{},out={}", escaped(&self.plugin), escaped(&self.out));
        for option in &self.options {
            argument.push(',');
            argument.push_str(option);
        }
        argument
    }

    /// What was counted, when QEMU has ended. Hot spots get names from these files of kernel and
    /// program, where they have symbols.
    pub fn finish(&self, kernel: &Path, program: Option<&Path>) -> Result<Modelled> {
        let text = std::fs::read_to_string(&self.out)
            .with_context(|| format!("cannot read {}", self.out.display()))?;
        if text.is_empty() {
            bail!(
                "the model has no figures: QEMU was killed before it could write {}",
                self.out.display()
            );
        }
        let report: Report = serde_json::from_str(&text)
            .with_context(|| format!("{} is no report of the model", self.out.display()))?;
        if report.format != FORMAT {
            bail!("the plugin is of another version (format {}, not {FORMAT})", report.format);
        }
        let functions = functions::of(&report.hot, kernel, program);
        let modelled = Modelled { report, functions };
        let text = serde_json::to_string(&modelled)? + "\n";
        std::fs::write(&self.out, text)
            .with_context(|| format!("cannot write {}", self.out.display()))?;
        Ok(modelled)
    }
}

impl Modelled {
    /// The figures by name: `cpu0.l1d_mpki`, `all.instructions`, and for the region of marker 3
    /// `3.cpu0.l1d_mpki`.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let mut named = Vec::new();
        for region in &self.report.regions {
            let prefix = match region.region {
                0 => String::new(),
                number => format!("{number}."),
            };
            let mut all = model::Counts::default();
            for (cpu, counts) in region.cpus.iter().enumerate() {
                all.add(counts);
                let figures = counts.figures().into_iter();
                named.extend(
                    figures.map(|(name, value)| (format!("{prefix}cpu{cpu}.{name}"), value)),
                );
            }
            let figures = all.figures().into_iter();
            named.extend(figures.map(|(name, value)| (format!("{prefix}all.{name}"), value)));
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(user: u64, l1d: u64) -> model::Counts {
        model::Counts { user, l1d, ..model::Counts::default() }
    }

    #[test]
    fn figures_are_named_by_region_and_cpu() {
        let regions = vec![
            model::Region { region: 0, cpus: vec![counts(1000, 5), counts(3000, 3)] },
            model::Region { region: 3, cpus: vec![counts(10, 0), counts(0, 0)] },
        ];
        let sizes = Sizes::default();
        let report = Report { format: FORMAT, sizes, is_marked: true, regions, hot: Vec::new() };
        let figures: std::collections::BTreeMap<_, _> =
            Modelled { report, functions: Vec::new() }.figures().into_iter().collect();
        assert_eq!(figures["cpu0.l1d_mpki"], 5.0);
        assert_eq!(figures["cpu1.l1d_mpki"], 1.0);
        assert_eq!(figures["all.l1d_mpki"], 2.0);
        assert_eq!(figures["3.cpu0.instructions"], 10.0);
    }

    #[test]
    fn paths_with_commas_are_escaped_for_qemu() {
        let model = Model {
            plugin: "/a,b/p.so".into(),
            out: "/c".into(),
            options: vec!["l2=256:4".to_owned()],
        };
        assert_eq!(model.argument(), "/a,,b/p.so,out=/c,l2=256:4");
    }

    #[test]
    fn wrong_sizes_are_wrong_usage() {
        let directory = tempfile::tempdir().unwrap();
        for wrong in ["l9=1:1", "l2", "l2=100:3"] {
            let out = directory.path().join("out");
            let Err(error) = Model::prepare(&out, &[wrong.to_owned()], None) else {
                panic!("{wrong} was taken");
            };
            assert_eq!(crate::status::of_error(&error), crate::status::USAGE, "{error:#}");
        }
    }
}
