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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::LINE;

    const KERNEL: u64 = 0xffff_ffff_8000_0000;
    const USER: u64 = 0x40_0000;
    const SYSCALL: &[u8] = &[0x0f, 0x05];
    const SYSRET: &[u8] = &[0x48, 0x0f, 0x07];
    const NOP: &[u8] = &[0x90];
    const OTHER: &[u8] = &[0x01, 0xc0];
    const ACKNOWLEDGE: u64 = 0xfee0_00b0;

    fn machine(cpus: usize) -> Machine {
        Machine::new(cpus, &Sizes::default(), false)
    }

    /// Executes a block of these instructions.
    fn run(machine: &Machine, cpu: usize, address: u64, code: &[&[u8]]) {
        let mut at = address;
        let mut instructions = Vec::new();
        for bytes in code {
            instructions.push((at, at & 0xffff_ffff, bytes.to_vec()));
            at += bytes.len() as u64;
        }
        let block = Block::new(&instructions);
        let number = machine.number(block.address);
        machine.execute(cpu, &block, number);
    }

    fn touch(machine: &Machine, cpu: usize, physical: u64, is_store: bool) {
        let access = Access { address: physical, physical, size: 8, is_store, is_device: false };
        machine.access(cpu, access);
    }

    fn counts(machine: &Machine, region: usize, cpu: usize) -> Counts {
        let report = machine.report(10);
        report
            .regions
            .iter()
            .find(|of| of.region == region)
            .map_or(Counts::default(), |of| of.cpus[cpu])
    }

    /// Reads so many bytes in order, and gives what a second pass over them counts.
    fn second_pass(bytes: u64) -> Counts {
        let machine = machine(1);
        let pass = || (0..bytes / LINE).for_each(|line| touch(&machine, 0, line * LINE, false));
        pass();
        machine.mark(Mark::Reset(0));
        pass();
        counts(&machine, 0, 0)
    }

    #[test]
    fn strides_miss_in_every_level_that_they_do_not_fit() {
        let misses = |kib: u64| {
            let counts = second_pass(kib * 1024);
            (counts.loads, counts.l1d, counts.l2, counts.llc_memory)
        };
        assert_eq!(misses(32), (512, 0, 0, 0));
        assert_eq!(misses(64), (1024, 1024, 0, 0));
        assert_eq!(misses(512), (8192, 8192, 8192, 0));
        assert_eq!(misses(16384), (262_144, 262_144, 262_144, 262_144));
    }

    #[test]
    fn pages_miss_where_translations_do_not_fit() {
        let misses = |pages: u64| {
            let counts = second_pass(pages * 4096);
            (counts.dtlb, counts.walks)
        };
        assert_eq!(misses(64), (0, 0));
        assert_eq!(misses(128), (128, 0));
        assert_eq!(misses(3072), (3072, 3072));
    }

    #[test]
    fn two_cpus_that_pass_lines_miss_once_per_round_each() {
        let machine = machine(2);
        let (ball, back) = (0, LINE);
        let round = || {
            touch(&machine, 0, ball, true);
            touch(&machine, 1, ball, false);
            touch(&machine, 1, back, true);
            touch(&machine, 0, back, false);
        };
        round();
        machine.mark(Mark::Reset(0));
        (0..1000).for_each(|_| round());
        for cpu in 0..2 {
            let counts = counts(&machine, 0, cpu);
            assert_eq!((counts.coherence, counts.upgrades, counts.llc_memory), (1000, 1000, 0));
        }
    }

    #[test]
    fn lines_that_are_only_read_are_shared_for_nothing() {
        let machine = machine(2);
        for _ in 0..100 {
            touch(&machine, 0, 0, false);
            touch(&machine, 1, 0, false);
        }
        let (first, second) = (counts(&machine, 0, 0), counts(&machine, 0, 1));
        assert_eq!((first.l1d, first.coherence, second.l1d, second.coherence), (1, 0, 1, 0));
        assert_eq!((first.llc_memory, second.llc_memory), (1, 0));
    }

    #[test]
    fn an_access_over_the_end_of_a_line_touches_both() {
        let machine = machine(1);
        let access =
            Access { address: 60, physical: 60, size: 8, is_store: false, is_device: false };
        machine.access(0, access);
        assert_eq!((counts(&machine, 0, 0).loads, counts(&machine, 0, 0).l1d), (1, 2));
    }

    /// Starts the kernel and then user code.
    fn start(machine: &Machine) {
        run(machine, 0, 0x1000, &[OTHER]);
        run(machine, 0, KERNEL, &[OTHER, SYSRET]);
        run(machine, 0, USER, &[OTHER, OTHER]);
    }

    #[test]
    fn user_code_begins_with_the_first_return_to_it() {
        let machine = machine(1);
        start(&machine);
        let counts = counts(&machine, 0, 0);
        assert_eq!((counts.user, counts.kernel, counts.exceptions), (2, 3, 0));
    }

    #[test]
    fn ways_into_the_kernel_are_told_apart() {
        let machine = machine(1);
        start(&machine);
        run(&machine, 0, USER, &[OTHER, SYSCALL]);
        run(&machine, 0, KERNEL, &[SYSRET]);
        run(&machine, 0, USER, &[OTHER]);
        // An exception: nothing acknowledges it.
        run(&machine, 0, KERNEL, &[OTHER, SYSRET]);
        run(&machine, 0, USER, &[OTHER]);
        // An interrupt.
        run(&machine, 0, KERNEL, &[OTHER]);
        let acknowledge = Access {
            address: KERNEL,
            physical: ACKNOWLEDGE,
            size: 4,
            is_store: true,
            is_device: true,
        };
        machine.access(0, acknowledge);
        run(&machine, 0, KERNEL, &[SYSRET]);
        run(&machine, 0, USER, &[OTHER]);
        let counts = counts(&machine, 0, 0);
        assert_eq!((counts.syscalls, counts.exceptions, counts.interrupts), (1, 1, 1));
        assert_eq!((counts.device, counts.llc_memory > 0), (1, true));
    }

    #[test]
    fn a_repeated_string_is_one_instruction() {
        let machine = machine(1);
        start(&machine);
        machine.mark(Mark::Begin(0));
        run(&machine, 0, USER, &[OTHER, &[0xf3, 0xa4]]);
        for _ in 0..9 {
            run(&machine, 0, USER + 2, &[&[0xf3, 0xa4]]);
        }
        assert_eq!(counts(&machine, 0, 0).user, 2);
    }

    #[test]
    fn waiting_is_what_lies_between_close_hints() {
        let machine = machine(1);
        run(&machine, 0, KERNEL, &[NOP, NOP, NOP, NOP]);
        run(&machine, 0, KERNEL + 64, &[OTHER; 6]);
        run(&machine, 0, KERNEL, &[NOP, NOP, NOP, NOP]);
        run(&machine, 0, KERNEL + 64, &[OTHER; 300]);
        run(&machine, 0, KERNEL, &[NOP, NOP, NOP, NOP]);
        assert_eq!((counts(&machine, 0, 0).waiting, counts(&machine, 0, 0).waiting_user), (10, 0));
    }

    #[test]
    fn a_short_loop_that_stores_nothing_waits_at_a_nop_of_two_bytes() {
        let machine = machine(1);
        start(&machine);
        let turn = || {
            touch(&machine, 0, 0, false);
            run(&machine, 0, USER, &[OTHER, &[0x66, 0x90], OTHER, OTHER]);
        };
        (0..11).for_each(|_| turn());
        assert_eq!(counts(&machine, 0, 0).waiting_user, 40);
        touch(&machine, 0, 0, true);
        turn();
        assert_eq!(counts(&machine, 0, 0).waiting_user, 40);
    }

    #[test]
    fn another_address_space_drops_the_translations_of_the_user() {
        let machine = machine(1);
        start(&machine);
        touch(&machine, 0, 0x7000, false);
        run(&machine, 0, KERNEL, &[&[0x0f, 0x22, 0xd8]]);
        machine.mark(Mark::Reset(0));
        run(&machine, 0, KERNEL + 64, &[OTHER]);
        touch(&machine, 0, 0x7000, false);
        let counts = counts(&machine, 0, 0);
        assert_eq!((counts.dtlb, counts.walks, counts.l1d), (1, 1, 0));
    }

    #[test]
    fn only_what_is_between_markers_counts_and_regions_are_apart() {
        let machine = Machine::new(1, &Sizes::default(), true);
        touch(&machine, 0, 0, false);
        assert!(!machine.is_counting());
        machine.mark(Mark::Begin(0));
        touch(&machine, 0, 0, false);
        machine.mark(Mark::End);
        touch(&machine, 0, 0x40, false);
        machine.mark(Mark::Begin(3));
        touch(&machine, 0, 0x80, true);
        machine.mark(Mark::End);
        assert_eq!((counts(&machine, 0, 0).loads, counts(&machine, 0, 0).stores), (1, 0));
        assert_eq!((counts(&machine, 3, 0).loads, counts(&machine, 3, 0).stores), (0, 1));
        assert!(machine.report(1).is_marked);
    }

    #[test]
    fn without_a_marker_everything_counts_and_the_first_one_forgets_it() {
        let machine = machine(1);
        touch(&machine, 0, 0, false);
        assert_eq!(counts(&machine, 0, 0).loads, 1);
        machine.mark(Mark::Begin(0));
        assert_eq!(counts(&machine, 0, 0).loads, 0);
        assert!(!Machine::new(1, &Sizes::default(), false).report(1).is_marked);
    }

    #[test]
    fn hot_spots_are_the_blocks_with_the_most_instructions() {
        let machine = machine(1);
        for _ in 0..5 {
            run(&machine, 0, KERNEL, &[OTHER, OTHER]);
        }
        touch(&machine, 0, 0, false);
        run(&machine, 0, KERNEL + 0x100, &[OTHER]);
        let hot = machine.report(1).hot;
        assert_eq!(hot.len(), 1);
        assert_eq!((hot[0].address, hot[0].instructions, hot[0].l1d), (KERNEL, 10, 1));
    }
}
