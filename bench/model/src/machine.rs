//! The machine: all CPUs, what they share, and what counts.
//!
//! Each CPU is behind a mutex of its own, which only the thread that emulates it takes, apart from
//! markers and the report. Threads that emulate CPUs run at the same time: how their accesses to the
//! same line interleave is what happened in the emulator.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::counts::Counts;
use crate::cpu::{Access, Block, BlockCounts, Cpu};
use crate::decode::{Kind, REGIONS};
use crate::llc::{LastLevel, MAX_CPUS};
use crate::report::{FORMAT, HotSpot, Region, Report};
use crate::sizes::Sizes;

/// Nothing counts.
const NOWHERE: usize = usize::MAX;

/// A marker in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// What follows counts, for this region.
    Begin(usize),
    /// What follows does not count.
    End,
    /// What was counted for this region is forgotten.
    Reset(usize),
}

impl Mark {
    /// The marker that an instruction is.
    pub fn of(kind: Kind) -> Option<Mark> {
        match kind {
            Kind::Begin(region) => Some(Mark::Begin(usize::from(region))),
            Kind::End => Some(Mark::End),
            Kind::Reset(region) => Some(Mark::Reset(usize::from(region))),
            _ => None,
        }
    }
}

/// All CPUs and what they share.
pub struct Machine {
    sizes: Sizes,
    cpus: Vec<Mutex<Cpu>>,
    level: LastLevel,
    /// The region that counts now.
    region: AtomicUsize,
    is_marked: AtomicBool,
    blocks: Mutex<Blocks>,
}

/// Blocks that were seen, with their numbers.
#[derive(Default)]
struct Blocks {
    addresses: Vec<u64>,
    numbers: HashMap<u64, usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// A machine with so many CPUs, up to 16. Unless it waits for a marker, everything counts up to the
    /// first one; what was counted until then is forgotten there.
    pub fn new(cpus: usize, sizes: &Sizes, waits_for_marker: bool) -> Machine {
        let cpus = cpus.clamp(1, MAX_CPUS);
        Machine {
            sizes: sizes.clone(),
            cpus: (0..cpus).map(|index| Mutex::new(Cpu::new(index, sizes))).collect(),
            level: LastLevel::new(cpus, sizes),
            region: AtomicUsize::new(if waits_for_marker { NOWHERE } else { 0 }),
            is_marked: AtomicBool::new(false),
            blocks: Mutex::default(),
        }
    }

    /// The number of a block; those at the same address share one.
    pub fn number(&self, address: u64) -> usize {
        let Blocks { addresses, numbers } = &mut *lock(&self.blocks);
        *numbers.entry(address).or_insert_with(|| {
            addresses.push(address);
            addresses.len() - 1
        })
    }

    #[inline]
    fn region(&self) -> Option<usize> {
        let region = self.region.load(Ordering::Relaxed);
        (region != NOWHERE).then_some(region)
    }

    /// A CPU executes a block.
    #[inline]
    pub fn execute(&self, cpu: usize, block: &Block, number: usize) {
        if let Some(cpu) = self.cpus.get(cpu) {
            lock(cpu).execute(block, number, self.region(), &self.level);
        }
    }

    /// Whether anything counts now. Nobody needs to tell of accesses when nothing does.
    #[inline]
    pub fn is_counting(&self) -> bool {
        self.region().is_some()
    }

    /// A CPU reads or writes memory.
    #[inline]
    pub fn access(&self, cpu: usize, access: Access) {
        if let Some(cpu) = self.cpus.get(cpu) {
            lock(cpu).access(access, self.region(), &self.level);
        }
    }

    /// A CPU executes a marker.
    pub fn mark(&self, mark: Mark) {
        let is_first = !self.is_marked.swap(true, Ordering::Relaxed);
        if is_first {
            self.clear(|_| true);
        }
        match mark {
            Mark::Begin(region) => self.region.store(region.min(REGIONS - 1), Ordering::Relaxed),
            Mark::End => self.region.store(NOWHERE, Ordering::Relaxed),
            Mark::Reset(region) => self.clear(|of| of == region),
        }
    }

    fn clear(&self, of: impl Fn(usize) -> bool) {
        for cpu in &self.cpus {
            let mut cpu = lock(cpu);
            for (region, counts) in cpu.counts.iter_mut().enumerate() {
                if of(region) {
                    *counts = Counts::default();
                }
            }
            cpu.blocks.fill(BlockCounts::default());
        }
    }

    /// What was counted. At most `hot` hot spots of each CPU.
    pub fn report(&self, hot: usize) -> Report {
        let cpus: Vec<MutexGuard<'_, Cpu>> = self.cpus.iter().map(lock).collect();
        let region = |region: usize| {
            let cpus: Vec<Counts> = cpus.iter().map(|cpu| cpu.counts[region]).collect();
            let is_empty = cpus.iter().all(|counts| *counts == Counts::default());
            (!is_empty || region == 0).then_some(Region { region, cpus })
        };
        let blocks = lock(&self.blocks);
        let mut spots = Vec::new();
        for (index, cpu) in cpus.iter().enumerate() {
            let counted = blocks.addresses.iter().zip(&cpu.blocks);
            let mut of_cpu: Vec<HotSpot> = counted
                .filter(|(_, counts)| counts.instructions > 0)
                .map(|(address, counts)| HotSpot {
                    address: *address,
                    cpu: index,
                    instructions: counts.instructions,
                    l1d: counts.l1d,
                    llc: counts.llc,
                })
                .collect();
            of_cpu.sort_by_key(|spot| std::cmp::Reverse(spot.instructions));
            of_cpu.truncate(hot);
            spots.extend(of_cpu);
        }
        spots.sort_by_key(|spot| std::cmp::Reverse(spot.instructions));
        Report {
            format: FORMAT,
            sizes: self.sizes.clone(),
            is_marked: self.is_marked.load(Ordering::Relaxed),
            regions: (0..REGIONS).filter_map(region).collect(),
            hot: spots,
        }
    }
}
