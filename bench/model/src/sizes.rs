//! The sizes of what is modelled, as options `NAME=VALUE`.
//!
//! The defaults are those of a core of Intel's Core i7-6700 ("Skylake", 2015): a common CPU with four
//! cores, caches of the sizes that the published experiments had, and an LLC that includes the private
//! caches, which is what the model does.

use serde::{Deserialize, Serialize};

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// Sizes: of caches in KiB with ways, of TLBs in entries with ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The CPU with these sizes.
    pub imitates: String,
    /// First-level cache of code, per CPU.
    pub l1i: (u64, u64),
    /// First-level cache of data, per CPU.
    pub l1d: (u64, u64),
    /// Second-level cache, per CPU.
    pub l2: (u64, u64),
    /// The last level, of all CPUs together.
    pub llc: (u64, u64),
    /// TLB of data, small pages.
    pub dtlb: (u64, u64),
    /// TLB of data, large pages.
    pub dtlb_large: (u64, u64),
    /// TLB of code, small pages.
    pub itlb: (u64, u64),
    /// TLB of code, large pages.
    pub itlb_large: (u64, u64),
    /// Second-level TLB.
    pub stlb: (u64, u64),
    /// Binary logarithm of the size of the kernel's pages.
    pub kernel_page_shift: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            imitates: "Intel Core i7-6700 (Skylake)".to_owned(),
            l1i: (32, 8),
            l1d: (32, 8),
            l2: (256, 4),
            llc: (8192, 16),
            dtlb: (64, 4),
            dtlb_large: (32, 4),
            itlb: (128, 8),
            itlb_large: (8, 8),
            stlb: (1536, 12),
            kernel_page_shift: 21,
        }
    }
}

/// Why an option is wrong, with what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongOption(pub String);

impl std::fmt::Display for WrongOption {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for WrongOption {}

impl Sizes {
    /// Applies an option such as `l2=1024:16` (KiB and ways), `dtlb=64:4` (entries and ways) or
    /// `kernel-page=4` (KiB). False when no size is called that.
    pub fn apply(&mut self, name: &str, value: &str) -> Result<bool, WrongOption> {
        let is_cache = ["l1i", "l1d", "l2", "llc"].contains(&name);
        let place = match name {
            "l1i" => &mut self.l1i,
            "l1d" => &mut self.l1d,
            "l2" => &mut self.l2,
            "llc" => &mut self.llc,
            "dtlb" => &mut self.dtlb,
            "dtlb-large" => &mut self.dtlb_large,
            "itlb" => &mut self.itlb,
            "itlb-large" => &mut self.itlb_large,
            "stlb" => &mut self.stlb,
            "kernel-page" => {
                self.kernel_page_shift = match value {
                    "4" => 12,
                    "2048" => 21,
                    _ => {
                        let text = format!("kernel-page={value}: use 4 or 2048 (KiB)");
                        return Err(WrongOption(text));
                    }
                };
                self.imitates = "sizes given as options".to_owned();
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let unit = if is_cache { "KiB" } else { "entries" };
        let wrong = |why: &str| {
            WrongOption(format!("{name}={value}: {why}; give {unit}:ways, as in {name}=64:4"))
        };
        let (size, ways) = value.split_once(':').ok_or_else(|| wrong("the ways are missing"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong("that is no number"));
        let (size, ways) = (number(size)?, number(ways)?);
        let entries = if is_cache { size * 1024 / LINE } else { size };
        if !(1..=64).contains(&ways) || !entries.is_multiple_of(ways) {
            return Err(wrong("it does not divide into so many ways"));
        }
        if !(entries / ways).is_power_of_two() || entries > 1 << 24 {
            return Err(wrong("the number of sets has to be a power of two"));
        }
        *place = (size, ways);
        self.imitates = "sizes given as options".to_owned();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_change_sizes() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.apply("l2", "1024:16"), Ok(true));
        assert_eq!(sizes.apply("kernel-page", "4"), Ok(true));
        assert_eq!((sizes.l2, sizes.kernel_page_shift), ((1024, 16), 12));
        assert_eq!(sizes.apply("out", "x"), Ok(false));
        assert_ne!(sizes.imitates, Sizes::default().imitates);
    }

    #[test]
    fn wrong_options_are_told_with_what_is_right() {
        for wrong in ["32", "x:8", "32:0", "33:8", "48:8", "32:65"] {
            let error = Sizes::default().apply("l1d", wrong).unwrap_err();
            assert!(error.to_string().contains("l1d=64:4"), "{error}");
        }
        assert!(Sizes::default().apply("kernel-page", "7").is_err());
    }
}
