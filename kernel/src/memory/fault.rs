//! Page faults: what a program touched is brought in, or the program gets a signal.
//!
//! ```text
//!  touch ── area? ── no ── stack below? ── grow ┐            no: SIGSEGV/MAPERR
//!             │ permitted? no: SIGSEGV/ACCERR   │
//!             ├─ page there: give the right back, or copy it (copy-on-write)
//!             ├─ anonymous: zero page for reading, fresh frame for writing
//!             └─ source: unlock, ask for the page, lock, look again, map
//! ```
//!
//! A source is never asked while the space is locked, because it may take locks of its own or wait.
//! Afterwards the area is looked up afresh: if it no longer shows that page, the fault starts over.
//!
//! Two things make faults fewer. A run of writes to neighbouring anonymous pages brings in a growing
//! number of pages ahead (`Run`). A fault on a source brings in the neighbours that its cache holds.

use abi::Errno;
use abi::memory::Protection;
use alloc::boxed::Box;
use alloc::sync::Arc;
use base::memory::{Frame, OutOfMemory, PageRights, VirtAddr, reserve, zero_frame};

use super::area::{Area, AreaFlags, Object};
use super::layout::{PAGE, STACK_GUARD, USER_END, page_floor};

use super::space::{AddressSpace, Inner, rights_of};

/// What the program did to the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access {
    /// It wrote.
    pub write: bool,
    /// It fetched an instruction.
    pub execute: bool,
}

impl Access {
    /// A read of data.
    pub const READ: Access = Access { write: false, execute: false };
    /// A write.
    pub const WRITE: Access = Access { write: true, execute: false };
    /// An instruction fetch.
    pub const EXECUTE: Access = Access { write: false, execute: true };

    /// The access that the machine reports with a page fault.
    pub const fn of_fault(write: bool, execute: bool) -> Access {
        Access { write, execute }
    }
}

/// Why a page could not be brought in; `si_addr` is the address that was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSignal {
    /// Nothing is mapped there: `SIGSEGV`, `SEGV_MAPERR`.
    NotMapped,
    /// The mapping does not permit it: `SIGSEGV`, `SEGV_ACCERR`.
    NotPermitted,
    /// The thread has denied itself the protection key of the page: `SIGSEGV`, `SEGV_PKUERR`.
    KeyDenied,
    /// Past the end of the file, or it cannot be read: `SIGBUS`, `BUS_ADRERR`.
    NoSuchPage,
    /// No memory is left: the program is killed (`SIGKILL`).
    OutOfMemory,
}

impl FaultSignal {
    /// Signal number and `si_code`.
    pub const fn signal_and_code(self) -> (u8, i32) {
        match self {
            FaultSignal::NotMapped => (11, 1),
            FaultSignal::NotPermitted => (11, 2),
            FaultSignal::KeyDenied => (11, 4),
            FaultSignal::NoSuchPage => (7, 2),
            FaultSignal::OutOfMemory => (9, 0x80),
        }
    }
}

/// Why a page is not there after one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPage {
    /// The program gets this signal.
    Signal(FaultSignal),
    /// Its source reads it, as `fs::pending` says.
    WantsIo,
    /// It is about to go or to move: the change has to end first.
    InMotion,
}

impl NoPage {
    /// What a call answers whose argument lies there.
    pub(super) const fn errno(self, otherwise: Errno) -> Errno {
        match self {
            NoPage::Signal(_) | NoPage::InMotion => otherwise,
            NoPage::WantsIo => Errno::EIOCBQUEUED,
        }
    }
}

/// A run of faults on neighbouring anonymous pages. The first two in order cost nothing extra; then
/// each further one brings in twice as many pages as the one before, up to 16.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    next: u64,
    streak: u32,
}

impl Run {
    /// Streak at which the window is at its widest.
    const LONG: u32 = 5;

    /// Notes a fault on `page` and says how many pages, itself included, to bring in.
    fn window(&mut self, page: u64) -> u64 {
        self.streak = if page == self.next { (self.streak + 1).min(Self::LONG) } else { 0 };
        let window = 1 << self.streak.saturating_sub(1);
        self.next = page + window * PAGE;
        window
    }
}

/// Pages around a fault that are brought in together when the source has them.
const NEIGHBOURS: u64 = 16;

/// What one look at the space led to.
enum Step {
    Done,
    Failed(FaultSignal),
    NeedsPage(Wanted),
    InMotion,
}

/// A page of a source that a fault waits for, and the aligned window of neighbours to take along.
struct Wanted {
    /// Writes are seen by all who map it.
    is_shared: bool,
    /// The source has to know of writes before they happen.
    is_tracked: bool,
    object: Arc<Object>,
    /// Address of the page.
    page: u64,
    /// Its number in the source.
    index: u64,
    /// Neighbours before and after it in the same area.
    before: u64,
    after: u64,
}

/// A page with its neighbours, as found in the source.
struct Found {
    frame: Frame,
    neighbours: [Option<Frame>; NEIGHBOURS as usize],
}

impl AddressSpace {
    /// Brings in the page of `address` for `access`.
    ///
    /// # Errors
    /// The signal that the program gets.
    pub async fn fault(&self, address: VirtAddr, access: Access) -> Result<(), FaultSignal> {
        loop {
            match self.fault_now(address.0, access) {
                Ok(()) => return Ok(()),
                Err(NoPage::Signal(signal)) => return Err(signal),
                Err(NoPage::WantsIo) => {
                    return Box::pin(self.fault_after_io(address.0, access)).await;
                }
                Err(NoPage::InMotion) => Box::pin(self.change_ended()).await,
            }
        }
    }

    /// Waits for the page that a source reads, and goes on.
    async fn fault_after_io(&self, address: u64, access: Access) -> Result<(), FaultSignal> {
        let again = || match self.fault_now(address, access) {
            Err(NoPage::WantsIo) => Err(Errno::EIOCBQUEUED),
            // The program touches it again.
            Err(NoPage::InMotion) => Ok(Ok(())),
            Err(NoPage::Signal(signal)) => Ok(Err(signal)),
            Ok(()) => Ok(Ok(())),
        };
        fs::pending::resume(again).await.unwrap_or(Err(FaultSignal::NoSuchPage))
    }

    /// `fault` for callers that cannot wait here: a source may want I/O first.
    pub(super) fn fault_now(&self, address: u64, access: Access) -> Result<(), NoPage> {
        if address >= USER_END {
            return Err(NoPage::Signal(FaultSignal::NotMapped));
        }
        let page = page_floor(address);
        loop {
            let step = {
                let mut inner = self.lock();
                let stack_limit = self.limits().stack;
                let total_limit = self.limits().address_space;
                inner.look(page, access, stack_limit, total_limit)
            };
            let wanted = match step {
                Step::Done => return Ok(()),
                Step::Failed(signal) => return Err(NoPage::Signal(signal)),
                Step::NeedsPage(wanted) => wanted,
                Step::InMotion => return Err(NoPage::InMotion),
            };
            let found = wanted.fetch()?;
            let written = (access.write && wanted.is_tracked).then(|| found.frame.clone());
            if let Some(frame) = &written
                && !wanted.announce(frame)?
            {
                continue;
            }
            let mut inner = self.lock();
            if inner.put_found(&wanted, found, access).map_err(NoPage::Signal)? {
                drop(inner);
                // Whoever wrote the page back after the first announcement may not have found it mapped.
                if let Some(frame) = &written
                    && !wanted.announce(frame).unwrap_or(false)
                {
                    self.lock().take_pages(page..page + PAGE);
                    continue;
                }
                if access.write && wanted.is_shared {
                    wanted.object.source.note_write();
                }
                return Ok(());
            }
        }
    }
}

fn no_page(error: Errno) -> NoPage {
    match error {
        Errno::EIOCBQUEUED => NoPage::WantsIo,
        Errno::ENOMEM => NoPage::Signal(FaultSignal::OutOfMemory),
        _ => NoPage::Signal(FaultSignal::NoSuchPage),
    }
}

impl Wanted {
    /// Tells the source that the page will be written to; false when the frame is not the page's any more.
    fn announce(&self, frame: &Frame) -> Result<bool, NoPage> {
        self.object.source.page_written(self.index, frame).map_err(no_page)
    }

    fn fetch(&self) -> Result<Found, NoPage> {
        let source = &self.object.source;
        let frame = source.page(self.index).map_err(no_page)?;
        let mut neighbours = [const { None }; NEIGHBOURS as usize];
        let count = (self.before + 1 + self.after).min(NEIGHBOURS) as usize;
        if count > 1
            && let Some(window) = neighbours.get_mut(..count)
        {
            source.pages_present(self.index - self.before, window);
        }
        Ok(Found { frame, neighbours })
    }
}

impl Inner {
    /// One look under the lock: everything that needs no page of a source is settled here.
    fn look(&mut self, page: u64, access: Access, stack_limit: u64, total_limit: u64) -> Step {
        if self.is_in_motion(page) {
            return Step::InMotion;
        }
        let found = match self.areas.find(page) {
            Some(found) => found,
            None => {
                if !self.grow_stack(page, stack_limit, total_limit) {
                    return Step::Failed(FaultSignal::NotMapped);
                }
                match self.areas.find(page) {
                    Some(found) => found,
                    None => return Step::Failed(FaultSignal::NotMapped),
                }
            }
        };
        let (start, area) = found;
        if area.flags.contains(AreaFlags::HIDDEN) && !access.execute {
            // To the program nothing is there.
            return Step::Failed(FaultSignal::NotMapped);
        }
        if !is_permitted(area, access) {
            return Step::Failed(FaultSignal::NotPermitted);
        }
        if let Some(state) = self.table.peek(VirtAddr(page)) {
            if !access.write || state.rights.write {
                // Another thread was faster, or a core's cached translation is older than the table.
                return Step::Done;
            }
            let rights = rights_of(area, true);
            if area.flags.contains(AreaFlags::TRACKED)
                && let Some((object, index)) = area.object_page(page - start)
            {
                let object = object.clone();
                let (is_shared, is_tracked, before, after) = (true, true, 0, 0);
                return Step::NeedsPage(Wanted {
                    object,
                    is_shared,
                    is_tracked,
                    page,
                    index,
                    before,
                    after,
                });
            }
            if !area.is_private() || state.references == 1 || self.is_pinned(page, state.frame) {
                self.table.set_rights(VirtAddr(page), rights);
                return Step::Done;
            }
            let copied = if state.frame == self.zero_address() {
                reserve::zeroed()
            } else {
                match self.table.lookup(VirtAddr(page)) {
                    Some(mapping) => reserve::copy(&mapping.frame),
                    None => return Step::Done,
                }
            };
            return self.settle(page, copied, rights);
        }
        if let Some((object, index)) = area.object_page(page - start) {
            let window = index & !(NEIGHBOURS - 1);
            let before = (index - window).min((page - start) / PAGE);
            let after = (window + NEIGHBOURS - 1 - index).min((area.end - page) / PAGE - 1);
            let (object, is_shared) = (object.clone(), !area.is_private());
            let is_tracked = area.flags.contains(AreaFlags::TRACKED);
            return Step::NeedsPage(Wanted {
                object,
                is_shared,
                is_tracked,
                page,
                index,
                before,
                after,
            });
        }
        let rights = rights_of(area, true);
        if !access.write {
            let rights = rights_of(area, false);
            return self.settle(page, Ok(zero_frame()), rights);
        }
        let end = area.end;
        let window = self.run.window(page);
        let step = self.settle(page, reserve::zeroed(), rights);
        if matches!(step, Step::Done) && window > 1 {
            self.bring_ahead(page + PAGE, end.min(page + window * PAGE), rights);
        }
        step
    }

    /// Brings in fresh pages of an anonymous area, as far as memory allows.
    fn bring_ahead(&mut self, from: u64, end: u64, rights: PageRights) {
        for page in (from..end).step_by(PAGE as usize) {
            if self.table.peek(VirtAddr(page)).is_some() {
                return;
            }
            let Ok(frame) = reserve::zeroed() else { return };
            if self.put_page(page, frame, rights, false).is_err() {
                return;
            }
        }
    }

    fn settle(&mut self, page: u64, frame: Result<Frame, OutOfMemory>, rights: PageRights) -> Step {
        let put = |frame| self.put_page(page, frame, rights, false);
        match frame.map_err(Errno::from).and_then(put) {
            Ok(()) => Step::Done,
            Err(_) => Step::Failed(FaultSignal::OutOfMemory),
        }
    }

    /// Maps what a source gave. `false`: the area shows something else by now, look again.
    fn put_found(
        &mut self,
        wanted: &Wanted,
        found: Found,
        access: Access,
    ) -> Result<bool, FaultSignal> {
        if self.is_in_motion(wanted.page) {
            return Ok(false);
        }
        let Some((start, area)) = self.areas.find(wanted.page) else { return Ok(false) };
        let still = area.object_page(wanted.page - start).is_some_and(|(object, index)| {
            Arc::ptr_eq(object, &wanted.object) && index == wanted.index
        });
        if !still || !is_permitted(area, access) {
            return Ok(false);
        }
        let (is_private, end) = (area.is_private(), area.end);
        let shared_rights = rights_of(area, area.is_freely_written());
        let own_rights = rights_of(area, true);
        if let Some(state) = self.table.peek(VirtAddr(wanted.page)) {
            if !access.write || !wanted.is_tracked {
                return Ok(false);
            }
            if state.frame == found.frame.address() {
                self.table.set_rights(VirtAddr(wanted.page), own_rights);
                return Ok(true);
            }
            self.take_pages(wanted.page..wanted.page + PAGE);
        }
        let result = if access.write && is_private {
            reserve::copy(&found.frame)
                .map_err(Errno::from)
                .and_then(|frame| self.put_page(wanted.page, frame, own_rights, false))
        } else {
            let is_written = access.write && wanted.is_tracked;
            let rights = if is_written { own_rights } else { shared_rights };
            self.put_page(wanted.page, found.frame, rights, !is_private)
        };
        result.map_err(|_| FaultSignal::OutOfMemory)?;
        let first = wanted.page - wanted.before * PAGE;
        for (page, frame) in (first..).step_by(PAGE as usize).zip(found.neighbours) {
            let Some(frame) = frame else { continue };
            if page < start || page >= end || self.table.peek(VirtAddr(page)).is_some() {
                continue;
            }
            if self.put_page(page, frame, shared_rights, !is_private).is_err() {
                break;
            }
        }
        Ok(true)
    }

    /// Extends the growing area above `page` down to it, if limits and neighbours permit.
    fn grow_stack(&mut self, page: u64, stack_limit: u64, total_limit: u64) -> bool {
        let Some((start, area)) = self.areas.next_above(page) else { return false };
        if !area.flags.contains(AreaFlags::GROWS_DOWN) || area.end - page > stack_limit {
            return false;
        }
        let added = (start - page) / PAGE;
        if (self.total + added).saturating_mul(PAGE) > total_limit {
            return false;
        }
        if let Some((_, below)) = self.areas.last_below(page + PAGE) {
            let is_guard =
                below.protection.is_empty() || below.flags.contains(AreaFlags::GROWS_DOWN);
            if !is_guard && page - below.end < STACK_GUARD {
                return false;
            }
        }
        self.areas.grow_down(start, page);
        self.total += added;
        self.total_peak = self.total_peak.max(self.total);
        true
    }
}

fn is_permitted(area: &Area, access: Access) -> bool {
    if access.write {
        area.protection.contains(Protection::WRITE)
    } else if access.execute {
        area.protection.contains(Protection::EXECUTE)
    } else {
        !area.protection.is_empty()
    }
}
