//! What a run was like, as the plugin writes it to a file and the tool reads it.

use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::sizes::Sizes;

/// Version of the report.
pub const FORMAT: u32 = 1;

/// Everything that was counted in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `FORMAT` of the plugin that wrote it.
    pub format: u32,
    /// What was modelled.
    pub sizes: Sizes,
    /// Whether the program marked what counts; without a marker the whole run does.
    pub is_marked: bool,
    /// What was counted: a region per marker number, or number 0 for all.
    pub regions: Vec<Region>,
    /// Where instructions and misses were, the most instructions first.
    pub hot: Vec<HotSpot>,
}

/// A region of interest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Its number.
    pub region: usize,
    /// Counters of each virtual CPU.
    pub cpus: Vec<Counts>,
}

/// What was counted for a block of code, in all regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotSpot {
    /// Virtual address of the block.
    pub address: u64,
    /// The virtual CPU.
    pub cpu: usize,
    /// Instructions executed.
    pub instructions: u64,
    /// Misses of the first-level data cache.
    pub l1d: u64,
    /// Lines from memory or from another CPU.
    pub llc: u64,
}
