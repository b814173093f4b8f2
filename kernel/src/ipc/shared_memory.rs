//! Segments of shared memory.
//!
//! A segment is a store of pages with an owner. Areas that show it are counted (`memory::Attach`). One
//! that was removed lives on, without its key, until the last area is gone. Its pages come into being
//! when they are touched.

use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use abi::ipc::*;
use abi::memory::Protection;
use base::memory::{Frame, reserve};
use base::sync::{Mutex, rank};

use super::limits::as_int;
use super::now_s;
use super::permission::{Permission, Wanted};
use super::space::Space;
use super::table::Table;
use crate::memory::{
    AddressSpace, AreaFlags, Attach, Attachment, Backing, MapRequest, Object, PAGE, PageSource,
    Place, SharedStore, is_page_aligned,
};
use crate::process::Resource;
use crate::process::credentials::{Capability, Credentials};
use crate::process::{Limits, Pid};

/// The segments of one namespace.
pub struct Segments {
    table: Table<Segment>,
    /// Pages of all segments, touched or not.
    pages: u64,
}

/// A segment.
struct Segment {
    id: i32,
    /// Where it is found; it may live on in an address space when that has ended.
    space: Weak<Space>,
    /// Bytes, as asked for.
    size: u64,
    store: Arc<SharedStore>,
    state: Mutex<State>,
}

struct State {
    permission: Permission,
    attachments: u64,
    attached_s: i64,
    detached_s: i64,
    changed_s: i64,
    creator: Pid,
    last: i32,
    /// User who locked it in memory.
    locked_by: Option<u32>,
}

impl Segment {
    fn pages(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }

    fn status(&self, state: &State) -> SegmentStatus {
        SegmentStatus {
            permission: state.permission.describe(self.id),
            size: self.size,
            attached_s: state.attached_s,
            detached_s: state.detached_s,
            changed_s: state.changed_s,
            creator: state.creator.0,
            last: state.last,
            attachments: state.attachments,
            unused: [0; 2],
        }
    }
}

impl Default for Segments {
    fn default() -> Segments {
        Segments::new()
    }
}

impl Segments {
    /// None.
    pub const fn new() -> Segments {
        Segments { table: Table::new(), pages: 0 }
    }

    /// Takes a segment out that nobody is attached to.
    fn destroy(&mut self, segment: &Segment, key: i32) -> Option<Arc<Segment>> {
        self.pages -= segment.pages();
        self.table.remove(segment.id, key)
    }
}

impl Attach for Segment {
    fn attach(&self, process: i32) {
        let mut state = self.state.lock();
        state.attachments += 1;
        state.attached_s = now_s();
        state.last = process;
    }

    fn detach(&self, process: i32) {
        let space = self.space.upgrade();
        let mut segments = space.as_ref().map(|space| space.segments.lock());
        let mut state = self.state.lock();
        state.attachments = state.attachments.saturating_sub(1);
        state.detached_s = now_s();
        state.last = process;
        let is_over = state.attachments == 0 && state.permission.mode & SHM_DEST != 0;
        let key = state.permission.key;
        drop(state);
        let removed = match &mut segments {
            Some(segments) if is_over => segments.destroy(self, key),
            _ => None,
        };
        drop(segments);
        drop(removed);
    }
}

impl PageSource for Segment {
    fn size(&self) -> u64 {
        self.size
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        self.store.page(index)
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        self.store.pages_present(first, into);
    }

    fn device(&self) -> u64 {
        self.store.device()
    }

    fn inode(&self) -> u64 {
        u64::from(self.id.unsigned_abs())
    }

    fn identity(&self) -> u64 {
        self.store.identity()
    }

    fn punch(&self, first: u64, end: u64) -> Result<(), Errno> {
        self.store.punch(first, end)
    }
}

/// `shmget`: the number of the segment of a key, or of a new one.
///
/// # Errors
/// `ENOENT`, `EEXIST`, `EACCES`, `EINVAL` for a size that is too large, `ENOSPC`, `ENOMEM`; `EPERM` for
/// huge pages without the right to them.
pub fn get(
    ipc: &Arc<Space>,
    key: i32,
    size: u64,
    flags: u32,
    process: Pid,
    credentials: &Credentials,
) -> Result<i32, Errno> {
    let mut segments = ipc.segments.lock();
    if let Some((id, segment)) = segments.table.look_up(key, flags)? {
        if segment.size < size {
            return Err(Errno::EINVAL);
        }
        segment.state.lock().permission.check(Wanted::of_flags(flags), credentials)?;
        return Ok(id);
    }
    if size < 1 || size > ipc.limits.shmmax.get() || i64::try_from(size).is_err() {
        return Err(Errno::EINVAL);
    }
    let pages = size.div_ceil(PAGE);
    let is_too_much =
        segments.pages.checked_add(pages).is_none_or(|together| together > ipc.limits.shmall.get());
    if pages.checked_mul(PAGE).is_none() || is_too_much {
        return Err(Errno::ENOSPC);
    }
    if flags & SHM_HUGETLB != 0 {
        // There are no huge pages: what a Linux without any in its pool answers.
        credentials.require(Capability::LockMemory)?;
        return Err(Errno::ENOMEM);
    }
    if pages > i64::MAX.unsigned_abs() / PAGE {
        return Err(Errno::EINVAL);
    }
    if flags & SHM_NORESERVE == 0 && pages > reserve::most() {
        return Err(Errno::ENOMEM);
    }
    let most = usize::try_from(ipc.limits.shmmni.get()).unwrap_or(usize::MAX);
    let id = segments.table.add(key, most, |id| Segment {
        id,
        space: Arc::downgrade(ipc),
        size,
        store: SharedStore::new(pages * PAGE),
        state: Mutex::new(
            &rank::IPC_OBJECT,
            State {
                permission: Permission::new(key, flags, credentials),
                attachments: 0,
                attached_s: 0,
                detached_s: 0,
                changed_s: now_s(),
                creator: process,
                last: 0,
                locked_by: None,
            },
        ),
    })?;
    segments.pages += pages;
    Ok(id)
}

/// `shmat`: maps a segment and returns where.
///
/// # Errors
/// `EINVAL` when there is no such segment, the address is not aligned or something is there; `EACCES`;
/// `ENOMEM`.
pub fn attach(
    ipc: &Arc<Space>,
    space: &AddressSpace,
    id: i32,
    address: u64,
    flags: u32,
    process: Pid,
    credentials: &Credentials,
) -> Result<MapRequest, Errno> {
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let replaces = flags & SHM_REMAP != 0;
    let mut start = address;
    if start != 0 && !is_page_aligned(start) {
        if flags & SHM_RND == 0 {
            return Err(Errno::EINVAL);
        }
        start -= start % PAGE;
    }
    if start == 0 && replaces {
        return Err(Errno::EINVAL);
    }
    let mut protection = Protection::READ;
    let mut wanted = Wanted::READ;
    if flags & SHM_RDONLY == 0 {
        protection |= Protection::WRITE;
        wanted = Wanted::BOTH;
    }
    if flags & SHM_EXEC != 0 {
        protection |= Protection::EXECUTE;
        wanted = wanted.and(Wanted::EXECUTE);
    }
    space.set_owner(process.0);
    let owner = space.owner();
    let (segment, attachment, key) = {
        // The attachment keeps the segment from being destroyed, so it is counted under the lock.
        let segments = ipc.segments.lock();
        let segment = segments.table.get(id)?;
        let state = segment.state.lock();
        state.permission.check(wanted, credentials)?;
        let key = state.permission.key;
        drop(state);
        (segment.clone(), Attachment::new(segment, &owner), key)
    };
    let length = segment.pages() * PAGE;
    // An address that was not 0 and is rounded to 0 is meant all the same.
    let is_chosen = address != 0;
    if is_chosen && !replaces {
        let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
        if !space.is_free(start..end) {
            return Err(Errno::EINVAL);
        }
    }
    let allowed = if flags & SHM_RDONLY == 0 {
        Protection::all()
    } else {
        Protection::READ | Protection::EXECUTE
    };
    let name = format!("/SYSV{key:08x} (deleted)").into_bytes();
    let object = Arc::new(Object { source: segment, name });
    Ok(MapRequest {
        place: match (is_chosen, replaces) {
            (false, _) => Place::Anywhere { hint: 0, is_low: false },
            (true, true) => Place::Fixed(start),
            (true, false) => Place::FixedIfFree(start),
        },
        length,
        protection,
        allowed,
        flags: AreaFlags::SHARED,
        backing: Backing::Object { object, first_page: 0 },
        attachment: Some(attachment),
        may_be_low: false,
    })
}

/// How a command names a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// By its number.
    Number,
    /// By its index.
    Index,
    /// By its index, whatever the permissions.
    AnyIndex,
}

/// `IPC_STAT` and its kin: what the call returns, and the description.
///
/// # Errors
/// `EINVAL`, `EACCES`.
pub fn status(
    ipc: &Arc<Space>,
    id: i32,
    named: Named,
    credentials: &Credentials,
) -> Result<(u64, SegmentStatus), Errno> {
    let segments = ipc.segments.lock();
    let (own, segment) = match named {
        Named::Number => (id, segments.table.get(id)?),
        Named::Index | Named::AnyIndex => segments.table.at(id)?,
    };
    let state = segment.state.lock();
    if named != Named::AnyIndex {
        state.permission.check(Wanted::READ, credentials)?;
    }
    let value = if named == Named::Number { 0 } else { u64::from(own.unsigned_abs()) };
    Ok((value, segment.status(&state)))
}

/// `IPC_SET`.
///
/// # Errors
/// `EINVAL`, `EPERM`.
pub fn set(
    ipc: &Arc<Space>,
    id: i32,
    to: &IpcPermission,
    credentials: &Credentials,
) -> Result<(), Errno> {
    let segment = ipc.segments.lock().table.get(id)?;
    let mut state = segment.state.lock();
    state.permission.check_owner(credentials)?;
    state.permission.set(to)?;
    state.changed_s = now_s();
    Ok(())
}

/// `IPC_RMID`.
///
/// # Errors
/// `EINVAL`, `EPERM`.
pub fn remove(ipc: &Arc<Space>, id: i32, credentials: &Credentials) -> Result<(), Errno> {
    let mut segments = ipc.segments.lock();
    let segment = segments.table.get(id)?;
    let mut state = segment.state.lock();
    state.permission.check_owner(credentials)?;
    let key = core::mem::replace(&mut state.permission.key, IPC_PRIVATE);
    if state.attachments != 0 {
        state.permission.mode |= SHM_DEST;
        if key != IPC_PRIVATE {
            segments.table.forget_key(key);
        }
        return Ok(());
    }
    drop(state);
    let removed = segments.destroy(&segment, key);
    drop(segments);
    drop(removed);
    Ok(())
}

/// `SHM_LOCK` and `SHM_UNLOCK`. There is no swap, so this sets a bit of the mode.
///
/// # Errors
/// `EINVAL`; `EPERM` without the right to lock; `ENOMEM` beyond the limit.
pub fn lock(
    ipc: &Arc<Space>,
    id: i32,
    is_locked: bool,
    limits: &Limits,
    credentials: &Credentials,
) -> Result<(), Errno> {
    let segments = ipc.segments.lock();
    let segment = segments.table.get(id)?;
    let user = credentials.user.effective;
    let is_privileged = credentials.is_capable(Capability::LockMemory);
    let limit = limits.soft(Resource::LockedMemory);
    if !is_privileged {
        let is_owner = segment.state.lock().permission.is_owner(credentials);
        if !is_owner || (is_locked && limit == 0) {
            return Err(Errno::EPERM);
        }
        let locked: u64 = segments
            .table
            .iter()
            .filter(|(_, other)| other.state.lock().locked_by == Some(user))
            .map(|(_, other)| other.size)
            .sum();
        if is_locked && locked.saturating_add(segment.size) > limit {
            return Err(Errno::ENOMEM);
        }
    }
    let mut state = segment.state.lock();
    if is_locked {
        state.permission.mode |= SHM_LOCKED;
        state.locked_by.get_or_insert(user);
    } else {
        state.permission.mode &= !SHM_LOCKED;
        state.locked_by = None;
    }
    Ok(())
}

/// `IPC_INFO`: the highest index and the limits.
pub fn limits(ipc: &Arc<Space>) -> (u64, SegmentLimits) {
    let limits = SegmentLimits {
        largest: ipc.limits.shmmax.get(),
        smallest: 1,
        segments: ipc.limits.shmmni.get(),
        per_process: ipc.limits.shmmni.get(),
        pages: ipc.limits.shmall.get(),
        unused: [0; 4],
    };
    (ipc.segments.lock().table.highest(), limits)
}

/// `SHM_INFO`: the highest index and what is in use.
pub fn usage(ipc: &Arc<Space>) -> (u64, SegmentUsage) {
    let segments = ipc.segments.lock();
    let stores: Vec<Arc<SharedStore>> =
        segments.table.iter().map(|(_, segment)| segment.store.clone()).collect();
    let (highest, pages) = (segments.table.highest(), segments.pages);
    drop(segments);
    let usage = SegmentUsage {
        segments: as_int(stores.len() as u64),
        padding: 0,
        pages,
        resident: stores.iter().map(|store| store.resident()).sum(),
        swapped: [0; 3],
    };
    (highest, usage)
}

/// Every segment with its number and its pages in memory, for `/proc/sysvipc/shm`.
pub fn list(ipc: &Arc<Space>) -> Vec<(i32, SegmentStatus, u64)> {
    let segments = ipc.segments.lock();
    let found: Vec<_> = segments
        .table
        .iter()
        .map(|(id, segment)| (id, segment.status(&segment.state.lock()), segment.store.clone()))
        .collect();
    drop(segments);
    found.into_iter().map(|(id, status, store)| (id, status, store.resident())).collect()
}

/// `/proc/sys/kernel/shm_next_id`
pub fn wanted(ipc: &Arc<Space>) -> i32 {
    ipc.segments.lock().table.wanted()
}

/// Sets it.
pub fn set_wanted(ipc: &Arc<Space>, id: i32) {
    ipc.segments.lock().table.set_wanted(id);
}
