//! What the model of caches and TLBs counted for the sides of a suite (`--model`): in the record as a
//! list of its own, on the terminal below the table. None of it was timed: a machine with the model is
//! several times slower.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::table::{Table, figure};
use crate::model::Function;

/// Follows the name of a side in figures of the model.
pub const MODEL: &str = "@model";

/// Functions that are kept for each side.
const FUNCTIONS: usize = 20;
/// Of a virtual CPU that executes less than this share of all instructions, nothing is printed.
const LEAST_SHARE: f64 = 1e-4;

/// What was counted on a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modelled {
    /// Name of the suite.
    pub suite: String,
    /// Name of the side.
    pub side: String,
    /// The CPU with the sizes that were modelled.
    pub imitates: String,
    /// Whether the program said what counts; else everything does, from the start of the machine.
    pub is_marked: bool,
    /// Figures by name: `cpu0.l1d_mpki`, `all.instructions`, and for marker 3 `3.cpu0.l1d_mpki`.
    pub figures: BTreeMap<String, f64>,
    /// Where most instructions were executed.
    pub functions: Vec<Function>,
}

impl Modelled {
    /// Reads what a run left in a file. `printed` are the figures that its program printed: a figure
    /// `modelled.REGION` is the number of operations in that region.
    pub fn read(
        suite: &str,
        side: &str,
        file: &Path,
        printed: &[(String, f64)],
    ) -> Result<Modelled> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the model left no figures in {}", file.display()))?;
        let mut modelled: crate::model::Modelled = serde_json::from_str(&text)
            .with_context(|| format!("{} has no figures of the model", file.display()))?;
        modelled.functions.truncate(FUNCTIONS);
        let mut figures = modelled.figures().into_iter().collect();
        add_per_call(&mut figures, printed);
        Ok(Modelled {
            suite: suite.to_owned(),
            side: side.to_owned(),
            figures,
            imitates: modelled.report.sizes.imitates,
            is_marked: modelled.report.is_marked,
            functions: modelled.functions,
        })
    }

    /// The figures as those of a side named `SIDE@model`.
    pub fn samples(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        self.figures.iter().map(|(name, value)| (format!("{}{MODEL} {name}", self.side), *value))
    }

    /// Regions and CPUs with something to tell, as the prefixes of their figures.
    fn prefixes(&self) -> impl Iterator<Item = &str> {
        let of = |prefix: &str| self.figures.get(&format!("{prefix}.instructions")).copied();
        self.figures.keys().filter_map(move |name| {
            let prefix = name.strip_suffix(".instructions")?;
            let region = prefix.rsplit_once('.').map_or("", |(region, _)| region);
            let all = if region.is_empty() { "all".to_owned() } else { format!("{region}.all") };
            let is_cpu = prefix != all;
            (is_cpu && of(prefix)? > of(&all)? * LEAST_SHARE).then_some(prefix)
        })
    }
}

/// Adds what was counted per operation, where the program said how many there were: `busy_per_call`,
/// the instructions that did not wait, of user and kernel; `busy_kernel_per_call`, `user_per_call` and
/// `coherence_per_call`.
fn add_per_call(figures: &mut BTreeMap<String, f64>, printed: &[(String, f64)]) {
    let operations = printed.iter().filter_map(|(name, calls)| {
        let region = name.strip_prefix("modelled.")?;
        (*calls > 0.0).then_some((format!("{region}."), *calls))
    });
    for (region, calls) in operations {
        let names = figures.keys().filter(|name| name.starts_with(&region));
        let cpus = names.filter_map(|name| name.strip_suffix(".instructions"));
        for cpu in cpus.map(str::to_owned).collect::<Vec<_>>() {
            let of = |name: &str| figures.get(&format!("{cpu}.{name}")).copied().unwrap_or(0.0);
            let (waiting, waiting_user) = (of("waiting"), of("waiting_user"));
            let per_call = [
                ("busy_per_call", of("instructions") - waiting),
                ("busy_kernel_per_call", of("kernel") - (waiting - waiting_user)),
                ("user_per_call", of("user")),
                ("coherence_per_call", of("coherence")),
            ];
            for (name, count) in per_call {
                figures.insert(format!("{cpu}.{name}"), count / calls);
            }
        }
    }
}

/// Columns of the table: head, and figure without its prefix.
const COLUMNS: [(&str, &str); 10] = [
    ("user", "user"),
    ("kernel", "kernel"),
    ("L1D", "l1d_mpki"),
    ("L1I", "l1i_mpki"),
    ("L2", "l2_mpki"),
    ("LLC", "llc_mpki"),
    ("shared", "coherence_mpki"),
    ("DTLB", "dtlb_mpki"),
    ("ITLB", "itlb_mpki"),
    ("interrupts", "interrupts"),
];

/// The table: one row per side, region and CPU.
pub fn table(modelled: &[Modelled]) -> Table {
    let heads = ["modelled"].into_iter().chain(COLUMNS.map(|(head, _)| head));
    let rows = modelled.iter().flat_map(|of| of.prefixes().map(move |prefix| (of, prefix)));
    let row = |(of, prefix): (&Modelled, &str)| {
        let value = |(_, name)| figure(of.figures.get(&format!("{prefix}.{name}")).copied());
        let name = format!("{} {prefix}", of.side);
        [name].into_iter().chain(COLUMNS.map(value)).collect()
    };
    Table { heads: heads.map(str::to_owned).collect(), rows: rows.map(row).collect() }
}

/// What stands above the table; `None` when nothing was modelled.
pub fn head(modelled: &[Modelled]) -> Option<String> {
    let imitates = &modelled.first()?.imitates;
    Some(format!(
        "Modelled ({imitates}), not timed. Instructions of user and kernel, misses per thousand of them:"
    ))
}

/// What stands below the table.
pub fn notes(modelled: &[Modelled]) -> Vec<String> {
    let unmarked = modelled.iter().filter(|of| !of.is_marked);
    unmarked
        .map(|of| format!("{}: without a marker: the start of the machine counts too", of.side))
        .collect()
}

/// What was modelled, as text; empty when nothing was.
pub fn to_text(modelled: &[Modelled]) -> String {
    let Some(head) = head(modelled) else { return String::new() };
    let notes = notes(modelled).into_iter().map(|note| note + "\n");
    format!("\n{head}\n{}{}", table(modelled).to_text(), notes.collect::<String>())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A side of a suite whose program ran on one virtual CPU.
    pub fn side_of(suite: &str) -> Modelled {
        let figures = [("all.instructions", 50.0), ("cpu0.instructions", 50.0)];
        Modelled { suite: suite.to_owned(), ..modelled(&figures) }
    }

    fn modelled(figures: &[(&str, f64)]) -> Modelled {
        Modelled {
            suite: "s".to_owned(),
            side: "remote".to_owned(),
            imitates: "x".to_owned(),
            is_marked: true,
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            functions: Vec::new(),
        }
    }

    #[test]
    fn there_is_a_line_for_each_cpu_that_did_something() {
        let figures = [
            ("all.instructions", 1e9),
            ("cpu0.instructions", 1e9),
            ("cpu0.l1d_mpki", 12.34),
            ("cpu1.instructions", 10.0),
            ("3.all.instructions", 50.0),
            ("3.cpu1.instructions", 50.0),
        ];
        let rows = table(&[modelled(&figures)]).rows;
        let names: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["remote 3.cpu1", "remote cpu0"]);
        assert_eq!((rows[1][3].as_str(), rows[1][4].as_str()), ("12.3", "-"));
        assert_eq!(to_text(&[]), "");
    }

    #[test]
    fn counts_per_operation_leave_out_what_waits() {
        let counted = [
            ("3.cpu1.instructions", 100.0),
            ("3.cpu1.kernel", 80.0),
            ("3.cpu1.user", 20.0),
            ("3.cpu1.waiting", 30.0),
            ("3.cpu1.waiting_user", 10.0),
            ("3.cpu1.coherence", 8.0),
            ("30.cpu1.instructions", 7.0),
        ];
        let mut figures = modelled(&counted).figures;
        add_per_call(&mut figures, &[("modelled.3".to_owned(), 4.0), ("other".to_owned(), 1.0)]);
        assert_eq!(figures["3.cpu1.busy_per_call"], 17.5);
        assert_eq!(figures["3.cpu1.busy_kernel_per_call"], 15.0);
        assert_eq!(figures["3.cpu1.user_per_call"], 5.0);
        assert_eq!(figures["3.cpu1.coherence_per_call"], 2.0);
        assert_eq!(figures.len(), counted.len() + 4);
    }

    #[test]
    fn figures_are_those_of_a_side_of_their_own() {
        let samples: Vec<_> = modelled(&[("cpu0.user", 5.0)]).samples().collect();
        assert_eq!(samples, [("remote@model cpu0.user".to_owned(), 5.0)]);
    }
}
