//! `AddressSpace`: what one program sees as memory.
//!
//! Shared by the threads of a process (and by a `vfork` child) as an `Arc`. One lock guards areas,
//! page table and counters together, so they never disagree; it is held for short, bounded work and
//! never while a source is asked for a page (see `fault.rs`). What changes much goes in turns and holds
//! the change lock over them (see `change.rs`). Lock order: files before spaces; two spaces are locked
//! together only by `fork`, the child last.
//!
//! The table itself makes cores forget translations before it lets go of a frame.

use abi::Errno;
use abi::memory::Protection;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::cpu::CpuId;
use base::memory::{Frame, PageRights, PageTable, PhysAddr, VirtAddr, zero_frame};
use base::sync::{Mutex, MutexGuard, Once, rank};
use base::task;
use base::user::{SpaceHandle, shootdown};
use core::any::Any;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{PAGES_AT_ONCE, Sites};

use super::area::{Area, AreaFlags, AreaMap, AreaTotals, Backing};
use super::attach::Owner;
use super::change::ChangeLock;
use super::guard::SpaceGuard;
use super::layout::{Layout, PAGE, USER_END};
use super::pin::Pinned;

/// Most areas of one address space, as `vm.max_map_count` on Linux.
pub const MOST_AREAS: usize = 65_530;

/// Resource limits that concern memory, in bytes. Written by `setrlimit`, read by everything here.
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: AtomicU64,
    /// `RLIMIT_DATA`.
    pub data: AtomicU64,
    /// `RLIMIT_STACK`.
    pub stack: AtomicU64,
    /// `RLIMIT_MEMLOCK`.
    pub locked: AtomicU64,
}

/// Limits as plain numbers; `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitValues {
    /// `RLIMIT_AS`.
    pub address_space: u64,
    /// `RLIMIT_DATA`.
    pub data: u64,
    /// `RLIMIT_STACK`.
    pub stack: u64,
    /// `RLIMIT_MEMLOCK`.
    pub locked: u64,
}

impl Default for LimitValues {
    fn default() -> LimitValues {
        LimitValues { address_space: u64::MAX, data: u64::MAX, stack: 8 << 20, locked: 8 << 20 }
    }
}

/// Sizes for `/proc/PID/{stat,statm,status}` and `getrusage`, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Mapped.
    pub total: u64,
    /// The most that was ever mapped.
    pub total_peak: u64,
    /// In memory.
    pub resident: u64,
    /// The most that was ever in memory.
    pub resident_peak: u64,
    /// In memory and backed by a shared source.
    pub resident_shared: u64,
    /// Private and writable, without the stack.
    pub data: u64,
    /// The stack.
    pub stack: u64,
    /// Executable.
    pub text: u64,
    /// Locked.
    pub locked: u64,
    /// Taken by page tables.
    pub tables: u64,
}

/// Where the program's arguments and environment lie, for `/proc/PID/{cmdline,environ,stat}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramRegions {
    /// Code of the program.
    pub code: Range<u64>,
    /// Data of the program.
    pub data: Range<u64>,
    /// Stack pointer at the start.
    pub stack_start: u64,
    /// Strings of the arguments.
    pub arguments: Range<u64>,
    /// Strings of the environment.
    pub environment: Range<u64>,
}

/// Bytes that a handler treats in one go.
const PIECE: u64 = PAGES_AT_ONCE * PAGE;

/// What the space lock guards.
pub(super) struct Inner {
    pub(super) areas: AreaMap,
    pub(super) table: PageTable,
    pub(super) layout: Layout,
    /// Start of the heap; 0 before a program is loaded.
    pub(super) break_start: u64,
    /// The program break.
    pub(super) break_end: u64,
    /// Mapped pages.
    pub(super) total: u64,
    pub(super) total_peak: u64,
    /// Pages in the table, the zero page left out.
    pub(super) resident: u64,
    pub(super) resident_peak: u64,
    /// Pages in the table that lie in areas which are not private.
    pub(super) resident_shared: u64,
    /// `mlockall(MCL_FUTURE)` is in force.
    pub(super) lock_future: bool,
    pub(super) regions: ProgramRegions,
    /// Pages whose frames the kernel shares with the program: they are never copied on write.
    pub(super) pinned: Vec<Pinned>,
    /// Run of faults on neighbouring anonymous pages, see `fault.rs`.
    pub(super) run: super::fault::Run,
    /// Process that attaches and detaches shared-memory segments here.
    pub(super) owner: Owner,
    /// Areas that were taken out and are let go of when the lock is free, see `guard.rs`.
    pub(super) removed: Vec<(u64, Area)>,
    /// Ranges that are about to go or to move: faults there wait for the end of the change.
    pub(super) in_motion: [Range<u64>; 2],
    /// What readers of its sizes have counted so far.
    pub(super) surveys: super::maps::Surveys,
    /// Children that are made and that nobody else knows yet.
    pub(super) copies: Vec<Weak<AddressSpace>>,
    zero: PhysAddr,
}

/// An address space.
pub struct AddressSpace {
    id: u64,
    handle: Arc<SpaceHandle>,
    limits: Limits,
    /// `membarrier` registrations, as command bits.
    barrier_registrations: AtomicU64,
    /// Its owner may look into it (`PR_SET_DUMPABLE`).
    is_dumpable: AtomicBool,
    inner: Mutex<Inner>,
    /// Who changes what is mapped.
    pub(super) changes: ChangeLock,
    /// Where its program posts calls without knowing.
    sites: Once<Arc<Sites>>,
    /// What others keep with it and what ends with it.
    attached: Once<Arc<dyn Any + Send + Sync>>,
}

/// Areas that are let go of in one go when a space ends.
const AREAS_AT_ONCE: usize = 64;

impl Drop for AddressSpace {
    /// Its areas go in turns where they are many, as its pages do (`base::memory`). Most programs have none
    /// left by now.
    fn drop(&mut self) {
        let mut areas = core::mem::replace(&mut self.inner.get_mut().areas, AreaMap::new());
        if areas.len() <= AREAS_AT_ONCE || !cfg!(target_os = "none") {
            return;
        }
        // Without memory for the task they go at once.
        let _ = task::spawn(CpuId::current(), async move {
            while areas.drop_some(AREAS_AT_ONCE) {
                task::yield_now().await;
            }
        });
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl AddressSpace {
    /// An empty space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(layout: Layout, limits: LimitValues) -> Result<Arc<AddressSpace>, Errno> {
        let table = PageTable::new()?;
        Ok(Arc::new(AddressSpace {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            handle: table.handle().clone(),
            limits: Limits {
                address_space: AtomicU64::new(limits.address_space),
                data: AtomicU64::new(limits.data),
                stack: AtomicU64::new(limits.stack),
                locked: AtomicU64::new(limits.locked),
            },
            barrier_registrations: AtomicU64::new(0),
            is_dumpable: AtomicBool::new(true),
            inner: Mutex::new(
                &rank::SPACE,
                Inner {
                    areas: AreaMap::new(),
                    table,
                    layout,
                    break_start: 0,
                    break_end: 0,
                    total: 0,
                    total_peak: 0,
                    resident: 0,
                    resident_peak: 0,
                    resident_shared: 0,
                    lock_future: false,
                    regions: ProgramRegions::default(),
                    pinned: Vec::new(),
                    run: super::fault::Run::default(),
                    owner: Owner::default(),
                    removed: Vec::new(),
                    in_motion: [0..0, 0..0],
                    surveys: super::maps::Surveys::default(),
                    copies: Vec::new(),
                    zero: zero_frame().address(),
                },
            ),
            changes: ChangeLock::new(),
            sites: Once::new(),
            attached: Once::new(),
        }))
    }

    /// A number that no other space has had or will have.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether its own user may look into it.
    pub fn is_dumpable(&self) -> bool {
        self.is_dumpable.load(Ordering::Relaxed)
    }

    /// Sets whether its own user may look into it. Who takes the right away does it before the program
    /// gets anything to hide.
    pub fn set_dumpable(&self, is_dumpable: bool) {
        self.is_dumpable.store(is_dumpable, Ordering::Relaxed);
    }

    /// Sets the limits; what exceeds them already stays.
    pub fn set_limits(&self, limits: LimitValues) {
        self.limits.address_space.store(limits.address_space, Ordering::Relaxed);
        self.limits.data.store(limits.data, Ordering::Relaxed);
        self.limits.stack.store(limits.stack, Ordering::Relaxed);
        self.limits.locked.store(limits.locked, Ordering::Relaxed);
    }

    /// The limits in force.
    pub fn limits(&self) -> LimitValues {
        LimitValues {
            address_space: self.limits.address_space.load(Ordering::Relaxed),
            data: self.limits.data.load(Ordering::Relaxed),
            stack: self.limits.stack.load(Ordering::Relaxed),
            locked: self.limits.locked.load(Ordering::Relaxed),
        }
    }

    pub(super) fn lock(&self) -> SpaceGuard<'_> {
        SpaceGuard::new(self.inner.lock())
    }

    /// Locks a child that is made, while its parent is locked.
    pub(super) fn lock_nested(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock_nested()
    }

    /// The sizes.
    pub fn counters(&self) -> Counters {
        let inner = self.lock();
        let AreaTotals { stack, data, text, locked } = inner.areas.totals();
        Counters {
            total: inner.total,
            total_peak: inner.total_peak,
            resident: inner.resident,
            resident_peak: inner.resident_peak,
            resident_shared: inner.resident_shared,
            data,
            stack,
            text,
            locked,
            tables: inner.table.table_count() as u64,
        }
    }

    /// Where the program's parts lie.
    pub fn regions(&self) -> ProgramRegions {
        self.lock().regions.clone()
    }

    /// Sets where the program's parts lie (`execve`, `prctl(PR_SET_MM)`).
    pub fn set_regions(&self, regions: ProgramRegions) {
        self.lock().regions = regions;
    }

    /// The start of the heap and the program break.
    pub fn heap(&self) -> Range<u64> {
        let inner = self.lock();
        inner.break_start..inner.break_end
    }

    /// The first part of `range` that is mapped, no longer than a handler may treat in one go.
    pub fn piece(&self, range: Range<u64>) -> Option<Range<u64>> {
        let inner = self.lock();
        let (start, area) = inner.areas.overlapping(range.clone()).next()?;
        let start = start.max(range.start);
        let end = area.end.min(range.end).min(start.saturating_add(PIECE));
        (start < end).then_some(start..end)
    }

    /// Pages in memory.
    pub fn resident(&self) -> u64 {
        self.lock().resident
    }

    /// What `base::user::run` needs.
    pub fn handle(&self) -> &Arc<SpaceHandle> {
        &self.handle
    }

    /// `membarrier` registrations, as command bits.
    pub fn barrier_registrations(&self) -> u64 {
        self.barrier_registrations.load(Ordering::Relaxed)
    }

    /// Adds a `membarrier` registration.
    pub fn register_barrier(&self, command: u64) {
        self.barrier_registrations.fetch_or(command, Ordering::Relaxed);
    }

    /// Makes every core that runs a thread of this space pass through the kernel.
    pub fn barrier(&self) {
        shootdown(&self.handle);
    }

    /// Where its program posts calls without knowing; `None` when it does not.
    pub fn sites(&self) -> Option<&Arc<Sites>> {
        self.sites.get()
    }

    /// Sets that, once.
    pub fn set_sites(&self, sites: Arc<Sites>) {
        self.sites.call_once(|| sites);
    }

    /// What is kept with it, made when it is first asked for. There is one kind of it.
    pub fn attached<T: Send + Sync + 'static>(&self, make: impl Fn() -> T) -> Arc<T> {
        let kept = self.attached.call_once(|| Arc::new(make()));
        kept.clone().downcast().unwrap_or_else(|_| Arc::new(make()))
    }

    /// Whether nothing is mapped in `range`.
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.lock().areas.is_free(range)
    }
}

impl Inner {
    fn is_zero_page(&self, frame: &Frame) -> bool {
        frame.address() == self.zero
    }

    /// Where the page of zeros is.
    pub(super) fn zero_address(&self) -> PhysAddr {
        self.zero
    }

    /// Adds an area where nothing is.
    pub(super) fn add_area(&mut self, start: u64, area: Area) {
        self.total += (area.end - start) / PAGE;
        self.total_peak = self.total_peak.max(self.total);
        self.areas.insert(start, area);
    }

    /// Takes areas and pages of `range` out. What the areas refer to lives until the lock is free.
    pub(super) fn remove_areas(&mut self, range: Range<u64>) {
        self.pinned.retain(|pinned| !range.contains(&pinned.page));
        let mut areas = self.areas.remove(range.clone());
        for (start, area) in &areas {
            self.total -= (area.end - start) / PAGE;
            let is_shared = !area.is_private();
            let taken = drain(&mut self.table, self.zero, *start..area.end, |_| is_shared);
            self.count_taken(taken);
        }
        self.trim_tables(range);
        areas.retain(|(_, area)| area.refers_to_something());
        if self.removed.is_empty() {
            self.removed = areas;
        } else {
            self.removed.append(&mut areas);
        }
    }

    /// Gives back page tables around `range`, where nothing is mapped any more.
    fn trim_tables(&mut self, range: Range<u64>) {
        let floor = self.areas.last_below(range.start).map_or(0, |(_, area)| area.end);
        let above = self.areas.next_above(range.end.saturating_sub(1));
        let ceiling = above.map_or(USER_END, |(start, _)| start);
        let hole = VirtAddr(floor)..VirtAddr(ceiling);
        self.table.trim(VirtAddr(range.start)..VirtAddr(range.end), hole);
    }

    /// Takes the pages of `range` out of the table and frees them.
    pub(super) fn take_pages(&mut self, range: Range<u64>) {
        let Inner { areas, table, resident_shared, zero, .. } = self;
        let has_shared = *resident_shared != 0;
        // The area that was asked about last.
        let mut known = (0..0, false);
        let taken = drain(table, *zero, range, |page| {
            if has_shared && !known.0.contains(&page) {
                let area = areas.find(page);
                known = area.map_or((page..page + PAGE, false), |(start, area)| {
                    (start..area.end, !area.is_private())
                });
            }
            known.1
        });
        self.count_taken(taken);
    }

    fn count_taken(&mut self, taken: Taken) {
        self.resident -= taken.all;
        self.resident_shared -= taken.shared;
    }

    /// Puts a page into the table, replacing what is there. `is_shared`: its area is not private.
    pub(super) fn put_page(
        &mut self,
        page: u64,
        frame: Frame,
        rights: PageRights,
        is_shared: bool,
    ) -> Result<(), Errno> {
        let is_counted = !self.is_zero_page(&frame);
        if let Some(replaced) = self.table.map(VirtAddr(page), frame, rights)?
            && !self.is_zero_page(&replaced)
        {
            self.count_taken(Taken { all: 1, shared: u64::from(is_shared) });
        }
        self.resident += u64::from(is_counted);
        self.resident_shared += u64::from(is_counted && is_shared);
        self.resident_peak = self.resident_peak.max(self.resident);
        Ok(())
    }

    /// Pages of areas that `RLIMIT_DATA` counts.
    pub(super) fn data_pages(&self) -> u64 {
        self.areas.totals().data
    }

    /// Pages that are locked.
    pub(super) fn locked_pages(&self) -> u64 {
        self.areas.totals().locked
    }
}

/// Pages that were taken out of a table, the page of zeros left out.
#[derive(Clone, Copy, Default)]
struct Taken {
    all: u64,
    /// Those of areas that are not private.
    shared: u64,
}

/// Takes the pages of `range` out of the table and frees them. `is_shared` tells of a page whether its area is
/// not private.
fn drain(
    table: &mut PageTable,
    zero: PhysAddr,
    range: Range<u64>,
    mut is_shared: impl FnMut(u64) -> bool,
) -> Taken {
    let mut taken = Taken::default();
    table.drain_range(VirtAddr(range.start)..VirtAddr(range.end), |page, frame, _| {
        if frame.address() != zero {
            taken.all += 1;
            taken.shared += u64::from(is_shared(page.0));
        }
    });
    taken
}

/// The rights that the table gives to a page of `area`; private pages that are shared with somebody
/// are not writable yet.
pub(super) fn rights_of(area: &Area, is_own: bool) -> PageRights {
    PageRights {
        write: area.protection.contains(Protection::WRITE) && is_own,
        execute: area.protection.contains(Protection::EXECUTE),
        user: !area.protection.is_empty(),
        hidden: area.flags.contains(AreaFlags::HIDDEN),
    }
}

/// An anonymous private area.
pub(super) fn anonymous_area(end: u64, protection: Protection) -> Area {
    Area {
        end,
        protection,
        allowed: Protection::all(),
        flags: AreaFlags::empty(),
        backing: Backing::Anonymous,
        attachment: None,
        placement: None,
    }
}
