//! What is counted for a virtual CPU.

use serde::{Deserialize, Serialize};

/// The counters of a virtual CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions at addresses of the user's half.
    pub user: u64,
    /// Instructions at addresses of the kernel's half, and those before the first user code.
    pub kernel: u64,
    /// Of these, instructions spent waiting: between hints that a loop waits.
    pub waiting: u64,
    /// Those of `waiting` that are of user code.
    pub waiting_user: u64,
    /// Reads of memory, as the emulator makes them.
    pub loads: u64,
    /// Writes of memory, likewise.
    pub stores: u64,
    /// Accesses of devices.
    pub device: u64,
    /// Lines of code that were not in the first-level cache.
    pub l1i: u64,
    /// Lines of data that were not in the first-level cache.
    pub l1d: u64,
    /// Lines that were not in the second-level cache.
    pub l2: u64,
    /// Lines that came from memory.
    pub llc_memory: u64,
    /// Lines that another CPU had written and still had.
    pub coherence: u64,
    /// Writes to a line that was at hand, but that other CPUs had too.
    pub upgrades: u64,
    /// Translations of data that the small TLB did not know.
    pub dtlb: u64,
    /// Translations of code that the small TLB did not know.
    pub itlb: u64,
    /// Translations that needed the page tables.
    pub walks: u64,
    /// Times that an address space was loaded.
    pub address_spaces: u64,
    /// Translations of a single page that were dropped; the model keeps them.
    pub page_flushes: u64,
    /// `syscall` instructions.
    pub syscalls: u64,
    /// Entries from user code that were neither a system call nor an interrupt.
    pub exceptions: u64,
    /// Interrupts that were acknowledged.
    pub interrupts: u64,
    /// Times halted.
    pub halts: u64,
}

impl Counts {
    /// All instructions.
    pub fn instructions(&self) -> u64 {
        self.user + self.kernel
    }

    /// So many per thousand instructions.
    fn per_thousand(&self, count: u64) -> f64 {
        match self.instructions() {
            0 => 0.0,
            instructions => count as f64 * 1e3 / instructions as f64,
        }
    }

    /// Adds those of another CPU.
    pub fn add(&mut self, other: &Counts) {
        let Counts {
            user,
            kernel,
            waiting,
            waiting_user,
            loads,
            stores,
            device,
            l1i,
            l1d,
            l2,
            llc_memory,
            coherence,
            upgrades,
            dtlb,
            itlb,
            walks,
            address_spaces,
            page_flushes,
            syscalls,
            exceptions,
            interrupts,
            halts,
        } = self;
        *user += other.user;
        *kernel += other.kernel;
        *waiting += other.waiting;
        *waiting_user += other.waiting_user;
        *loads += other.loads;
        *stores += other.stores;
        *device += other.device;
        *l1i += other.l1i;
        *l1d += other.l1d;
        *l2 += other.l2;
        *llc_memory += other.llc_memory;
        *coherence += other.coherence;
        *upgrades += other.upgrades;
        *dtlb += other.dtlb;
        *itlb += other.itlb;
        *walks += other.walks;
        *address_spaces += other.address_spaces;
        *page_flushes += other.page_flushes;
        *syscalls += other.syscalls;
        *exceptions += other.exceptions;
        *interrupts += other.interrupts;
        *halts += other.halts;
    }

    /// The figures by name, as cases of a suite refer to them. Those that end in `mpki` are misses per
    /// thousand instructions; `llc_mpki` has both lines from memory and lines from other CPUs.
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("instructions", self.instructions() as f64),
            ("user", self.user as f64),
            ("kernel", self.kernel as f64),
            ("waiting", self.waiting as f64),
            ("waiting_user", self.waiting_user as f64),
            ("loads", self.loads as f64),
            ("stores", self.stores as f64),
            ("l1i_mpki", self.per_thousand(self.l1i)),
            ("l1d_mpki", self.per_thousand(self.l1d)),
            ("l2_mpki", self.per_thousand(self.l2)),
            ("llc_mpki", self.per_thousand(self.llc_memory + self.coherence)),
            ("memory_mpki", self.per_thousand(self.llc_memory)),
            ("coherence_mpki", self.per_thousand(self.coherence)),
            ("dtlb_mpki", self.per_thousand(self.dtlb)),
            ("itlb_mpki", self.per_thousand(self.itlb)),
            ("walks_mpki", self.per_thousand(self.walks)),
            ("l1i", self.l1i as f64),
            ("l1d", self.l1d as f64),
            ("l2", self.l2 as f64),
            ("memory", self.llc_memory as f64),
            ("coherence", self.coherence as f64),
            ("upgrades", self.upgrades as f64),
            ("dtlb", self.dtlb as f64),
            ("itlb", self.itlb as f64),
            ("walks", self.walks as f64),
            ("address_spaces", self.address_spaces as f64),
            ("syscalls", self.syscalls as f64),
            ("exceptions", self.exceptions as f64),
            ("interrupts", self.interrupts as f64),
            ("halts", self.halts as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_per_thousand_instructions() {
        let counts = Counts {
            user: 1500,
            kernel: 500,
            l1d: 10,
            llc_memory: 3,
            coherence: 1,
            ..Counts::default()
        };
        let figures: std::collections::BTreeMap<_, _> = counts.figures().into_iter().collect();
        assert_eq!(figures.get("l1d_mpki"), Some(&5.0));
        assert_eq!((figures.get("llc_mpki"), figures.get("memory_mpki")), (Some(&2.0), Some(&1.5)));
        assert_eq!(Counts::default().per_thousand(1), 0.0);
    }

    #[test]
    fn sums_have_every_counter() {
        let one: Counts = serde_json::from_value(
            serde_json::to_value(Counts::default())
                .unwrap()
                .as_object()
                .unwrap()
                .keys()
                .map(|name| (name.clone(), serde_json::Value::from(2)))
                .collect(),
        )
        .unwrap();
        let mut sum = one;
        sum.add(&one);
        let sum = serde_json::to_value(sum).unwrap();
        assert!(sum.as_object().unwrap().values().all(|value| value == 4), "{sum}");
    }
}
