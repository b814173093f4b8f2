//! A virtual CPU: its private caches and TLBs, its counters, and what can be told of its state from the
//! blocks that it executes.
//!
//! ```text
//!   user block, ends with `syscall`       -> kernel block     a system call
//!   user block, ends with anything else   -> kernel block     an entry: an interrupt if it is
//!                                                             acknowledged before the way back, else
//!                                                             an exception
//!   kernel block, ends with sysret, iretq -> low address      user code
//! ```

use crate::cache::Array;
use crate::counts::Counts;
use crate::decode::{Kind, REGIONS};
use crate::llc::{LastLevel, Obtained, Order, Source};
use crate::sizes::{LINE, Sizes};
use crate::tlb::{Lookup, Tlbs};

/// Two hints that a loop waits, at most so many instructions apart, had nothing but waiting between.
const WAITING_LIMIT: u64 = 256;
/// The same for hints that may be padding; and nothing is stored between.
const SHORT_WAITING_LIMIT: u64 = 8;
/// As many one-byte `nop`s in a row are such a hint too.
const NOPS_OF_A_HINT: usize = 4;
/// A write to this physical address acknowledges an interrupt: the local APIC's EOI register.
const ACKNOWLEDGE: u64 = 0xfee0_00b0;

/// A run of instructions that is executed from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Virtual address.
    pub address: u64,
    /// Number of instructions.
    pub instructions: u64,
    /// Lines of code, by the machine's memory.
    pub lines: Vec<u64>,
    /// Virtual addresses on each page that it touches.
    pub pages: Vec<u64>,
    /// Its first instruction is a repeated string instruction, which is where each repetition starts.
    pub is_repetition: bool,
    /// Address of the last instruction.
    pub last_address: u64,
    /// The last instruction.
    pub last: Kind,
    /// Page flushes in it.
    pub page_flushes: u64,
    /// It has a hint that a loop waits.
    pub waits: bool,
    /// It has one that may be padding.
    pub may_wait: bool,
}

impl Block {
    /// A block of these instructions: virtual address, address in the machine's memory, and bytes.
    pub fn new(instructions: &[(u64, u64, Vec<u8>)]) -> Block {
        let kinds: Vec<Kind> =
            instructions.iter().map(|(_, _, bytes)| crate::decode::kind(bytes)).collect();
        let mut lines = Vec::new();
        let mut pages: Vec<u64> = Vec::new();
        for (address, memory, bytes) in instructions {
            let last = memory + (bytes.len() as u64).saturating_sub(1);
            for line in memory / LINE..=last / LINE {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
            if pages.last().is_none_or(|page| page >> 12 != address >> 12) {
                pages.push(*address);
            }
        }
        let has_nops =
            kinds.windows(NOPS_OF_A_HINT).any(|kinds| kinds.iter().all(|kind| *kind == Kind::Nop));
        Block {
            address: instructions.first().map_or(0, |(address, ..)| *address),
            instructions: instructions.len() as u64,
            lines,
            pages,
            is_repetition: kinds.first() == Some(&Kind::RepeatedString),
            last_address: instructions.last().map_or(0, |(address, ..)| *address),
            last: kinds.last().copied().unwrap_or(Kind::Other),
            page_flushes: kinds.iter().filter(|kind| **kind == Kind::FlushPage).count() as u64,
            waits: has_nops || kinds.contains(&Kind::Pause),
            may_wait: kinds.contains(&Kind::ShortNop),
        }
    }
}

/// A read or write of memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Virtual address.
    pub address: u64,
    /// Physical address.
    pub physical: u64,
    /// Bytes.
    pub size: u64,
    /// A write.
    pub is_store: bool,
    /// Of a device.
    pub is_device: bool,
}

/// What is counted for a block, on a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockCounts {
    pub instructions: u64,
    pub l1d: u64,
    pub llc: u64,
}

/// What kind of code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Low addresses before there was any user code: firmware and start code.
    Boot,
    Kernel,
    User,
}

/// How the kernel was entered, when that was not by a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// By a system call, or it is over.
    None,
    /// Not acknowledged so far.
    Unexplained,
}

/// A virtual CPU.
pub struct Cpu {
    index: usize,
    l1i: Array,
    l1d: Array,
    l2: Array,
    tlbs: Tlbs,
    /// Counters by region.
    pub counts: [Counts; REGIONS],
    /// Counters by number of the block.
    pub blocks: Vec<BlockCounts>,
    current: usize,
    mode: Mode,
    last: Kind,
    last_address: u64,
    entry: Entry,
    since_hint: u64,
    has_stored: bool,
}

impl Cpu {
    /// With empty caches, before its first instruction.
    pub fn new(index: usize, sizes: &Sizes) -> Cpu {
        let cache = |(kib, ways): (u64, u64)| {
            Array::new((kib * 1024 / LINE / ways) as usize, ways as usize)
        };
        Cpu {
            index,
            l1i: cache(sizes.l1i),
            l1d: cache(sizes.l1d),
            l2: cache(sizes.l2),
            tlbs: Tlbs::new(sizes),
            counts: [Counts::default(); REGIONS],
            blocks: Vec::new(),
            current: 0,
            mode: Mode::Boot,
            last: Kind::Other,
            last_address: 0,
            entry: Entry::None,
            since_hint: WAITING_LIMIT + 1,
            has_stored: false,
        }
    }

    /// Executes a block. `region` is where it counts; with `None` only the state is followed.
    pub fn execute(
        &mut self,
        block: &Block,
        number: usize,
        region: Option<usize>,
        level: &LastLevel,
    ) {
        let repeats = block.is_repetition
            && self.last_address == block.address
            && self.last == Kind::RepeatedString;
        let mut unseen = Counts::default();
        self.follow(block, region, &mut unseen);
        let Some(region) = region else { return };
        self.obey(level);
        let counts = &mut self.counts[region];
        counts.add(&unseen);
        counts.page_flushes += block.page_flushes;
        counts.address_spaces += u64::from(block.last == Kind::LoadAddressSpace);
        counts.halts += u64::from(block.last == Kind::Halt);
        counts.syscalls += u64::from(block.last == Kind::SystemCall && self.mode == Mode::User);
        let instructions = block.instructions - u64::from(repeats);
        match self.mode {
            Mode::User => counts.user += instructions,
            Mode::Kernel | Mode::Boot => counts.kernel += instructions,
        }
        self.since_hint = self.since_hint.saturating_add(instructions);
        if block.waits || block.may_wait {
            let has_waited = match block.waits {
                true => self.since_hint <= WAITING_LIMIT,
                false => self.since_hint <= SHORT_WAITING_LIMIT && !self.has_stored,
            };
            if has_waited {
                counts.waiting += self.since_hint;
                counts.waiting_user += if self.mode == Mode::User { self.since_hint } else { 0 };
            }
            self.since_hint = 0;
            self.has_stored = false;
        }
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, BlockCounts::default());
        }
        self.blocks[number].instructions += instructions;
        self.current = number;
        for page in &block.pages {
            let lookup = self.tlbs.translate(*page, true);
            counts.itlb += u64::from(lookup != Lookup::Hit);
            counts.walks += u64::from(lookup == Lookup::Walk);
        }
        for line in &block.lines {
            // Known by the machine's memory, which the plugin does not translate back: names of their own.
            let line = line & (CODE - 1) | CODE;
            if self.l1i.touch(line).is_none() {
                self.counts[region].l1i += 1;
                self.fetch(line, region, level);
            }
        }
    }

    /// Follows the state of the CPU into a block.
    fn follow(&mut self, block: &Block, region: Option<usize>, counts: &mut Counts) {
        if self.last == Kind::LoadAddressSpace {
            self.tlbs.switch();
        }
        let mode = match (block.address >> 63 != 0, self.last, self.mode) {
            (true, ..) => Mode::Kernel,
            (false, Kind::Return, _) | (false, _, Mode::User) => Mode::User,
            (false, _, Mode::Boot | Mode::Kernel) => Mode::Boot,
        };
        match (self.mode, mode) {
            (Mode::User, Mode::Kernel) if self.last != Kind::SystemCall => {
                self.entry = Entry::Unexplained;
            }
            (Mode::Kernel, Mode::User) => {
                if self.entry == Entry::Unexplained && region.is_some() {
                    counts.exceptions += 1;
                }
                self.entry = Entry::None;
            }
            _ => {}
        }
        if mode != self.mode {
            self.since_hint = WAITING_LIMIT + 1;
        }
        self.mode = mode;
        self.last = block.last;
        self.last_address = block.last_address;
    }

    /// Reads or writes memory.
    pub fn access(&mut self, access: Access, region: Option<usize>, level: &LastLevel) {
        if access.is_device && access.is_store && access.physical == ACKNOWLEDGE {
            self.entry = Entry::None;
            if let Some(region) = region {
                self.counts[region].interrupts += 1;
            }
        }
        let Some(region) = region else { return };
        self.obey(level);
        self.has_stored |= access.is_store;
        let counts = &mut self.counts[region];
        match access.is_store {
            true => counts.stores += 1,
            false => counts.loads += 1,
        }
        let lookup = self.tlbs.translate(access.address, false);
        counts.dtlb += u64::from(lookup != Lookup::Hit);
        counts.walks += u64::from(lookup == Lookup::Walk);
        if access.is_device {
            counts.device += 1;
            return;
        }
        let first = access.physical / LINE;
        let last = (access.physical + access.size.saturating_sub(1)) / LINE;
        self.touch(first, access.is_store, region, level);
        // The next line of memory follows only on the same page.
        if last != first && first >> 6 == last >> 6 {
            self.touch(last, access.is_store, region, level);
        }
    }

    fn touch(&mut self, line: u64, is_store: bool, region: usize, level: &LastLevel) {
        match self.l1d.touch(line) {
            Some(is_owned) if is_owned || !is_store => return,
            Some(_) => {}
            None => {
                self.counts[region].l1d += 1;
                self.blocks_current().l1d += 1;
                match self.l2.touch(line) {
                    Some(is_owned) => {
                        // What the first level displaces is still in the second, with its state.
                        self.l1d.insert(line, is_owned);
                        if is_owned || !is_store {
                            return;
                        }
                    }
                    None => {
                        self.counts[region].l2 += 1;
                        self.obtain(line, is_store, region, level);
                        self.l1d.insert(line, is_store);
                        return;
                    }
                }
            }
        }
        self.upgrade(line, region, level);
    }

    /// Fetches a line of code that the first level does not have.
    fn fetch(&mut self, line: u64, region: usize, level: &LastLevel) {
        if self.l2.touch(line).is_none() {
            self.counts[region].l2 += 1;
            self.obtain(line, false, region, level);
        }
        self.l1i.insert(line, false);
    }

    /// Brings a line into the second level.
    fn obtain(&mut self, line: u64, is_store: bool, region: usize, level: &LastLevel) {
        let Obtained { source, .. } =
            level.obtain(self.index, line, is_store, |orders| self.carry_out(orders));
        let counts = &mut self.counts[region];
        match source {
            Source::LastLevel => {}
            Source::OtherCpu => counts.coherence += 1,
            Source::Memory => counts.llc_memory += 1,
        }
        if source != Source::LastLevel {
            self.blocks_current().llc += 1;
        }
        self.insert_second(line, is_store, level);
    }

    /// Puts a line into the second level, which includes the first: what it displaces is gone there too.
    fn insert_second(&mut self, line: u64, is_owned: bool, level: &LastLevel) {
        if let Some(evicted) = self.l2.insert(line, is_owned) {
            self.l1d.remove(evicted.key);
            self.l1i.remove(evicted.key);
            if evicted.is_owned {
                level.write_back(self.index, evicted.key);
            }
        }
    }

    /// Makes a line that is at hand one that only this CPU has.
    fn upgrade(&mut self, line: u64, region: usize, level: &LastLevel) {
        let obtained = level.obtain(self.index, line, true, |orders| self.carry_out(orders));
        self.counts[region].upgrades += u64::from(obtained.was_shared);
        if obtained.source == Source::OtherCpu {
            // Taken away in between: it was at hand no more.
            self.counts[region].coherence += 1;
            self.blocks_current().llc += 1;
        }
        if self.l2.touch(line).is_none() {
            self.insert_second(line, true, level);
        }
        if self.l1d.touch(line).is_none() {
            self.l1d.insert(line, true);
        }
        self.l2.set_owned(line, true);
        self.l1d.set_owned(line, true);
    }

    #[inline]
    fn obey(&mut self, level: &LastLevel) {
        if level.has_orders(self.index) {
            self.carry_out(level.take_orders(self.index));
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Drop(line) => {
                    self.l1i.remove(line);
                    self.l1d.remove(line);
                    self.l2.remove(line);
                }
                Order::Share(line) => {
                    self.l1d.set_owned(line, false);
                    self.l2.set_owned(line, false);
                }
            }
        }
    }

    fn blocks_current(&mut self) -> &mut BlockCounts {
        if self.blocks.len() <= self.current {
            self.blocks.resize(self.current + 1, BlockCounts::default());
        }
        &mut self.blocks[self.current]
    }
}

/// Marks lines of code.
const CODE: u64 = 1 << 58;
