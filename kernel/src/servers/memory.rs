//! Calls of class memory: what is mapped, with which rights, and advice about it.
//!
//! A handler checks and rounds its arguments in the order of Linux, so that the same mistake gets the
//! same errno, and leaves the work to `crate::memory`.

mod change;
mod others;
mod placement;

pub use change::make_room;

use core::ops::Range;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::fs::Seals;
use abi::memory::*;
use alloc::sync::Arc;
use alloc::vec;
use fs::OpenFile;
use fs::file::Mapping;
use policy::table::number;

use crate::call::{self, Call, Pace, SysResult, in_turns};
use crate::memory::{
    AddressSpace, AreaFlags, Backing, FileSource, LimitValues, MapRequest, Object, PAGE,
    PAGES_AT_ONCE, PageSource as _, Place, SharedStore, USER_END, UserMemory, is_page_aligned,
    is_user_range, page_ceil, page_floor,
};
use crate::process::limits::{Limits, Resource};
use crate::process::{Pid, mapped};

use crate::process::Capability;
use crate::process::access::Observer;

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::mmap => mmap(call).await,
        number::mprotect => change::mprotect(call).await,
        number::munmap => change::munmap(call).await,
        number::brk => change::brk(call).await,
        number::mremap => change::mremap(call).await,
        number::msync => msync(call).await,
        number::mincore => mincore(call).await,
        number::madvise => madvise(call).await,
        number::mlock => mlock(call, 0).await,
        number::mlock2 => mlock(call, call.unsigned(2)).await,
        number::munlock => munlock(call).await,
        number::mlockall => mlockall(call).await,
        number::munlockall => munlockall(call).await,
        number::membarrier => membarrier(call),
        number::process_vm_readv => process_vm(call, false).await,
        number::process_vm_writev => process_vm(call, true).await,
        number::process_madvise => others::process_madvise(call).await,
        number::process_mrelease => others::process_mrelease(call),
        number::remap_file_pages => others::remap_file_pages(call).await,
        number::pkey_alloc => others::pkey_alloc(call),
        // No key was ever given out.
        number::pkey_free => Err(Errno::EINVAL),
        number::pkey_mprotect => others::pkey_mprotect(call).await,
        number::mbind => placement::mbind(call).await,
        number::set_mempolicy => placement::set_mempolicy(call).await,
        number::get_mempolicy => placement::get_mempolicy(call).await,
        number::set_mempolicy_home_node => placement::set_home_node(call),
        number::migrate_pages => placement::migrate_pages(call).await,
        number::move_pages => placement::move_pages(call).await,
        _ => Err(call::unknown(call.number())),
    }
}

/// Pages that a mapped file may have at most.
const MOST_FILE_PAGES: u64 = fs::file::MAX_FILE_SIZE / PAGE;

/// The limits of a process that concern its memory.
pub fn limits_of(limits: &Limits) -> LimitValues {
    LimitValues {
        address_space: limits.soft(Resource::AddressSpace),
        data: limits.soft(Resource::Data),
        stack: limits.soft(Resource::Stack),
        locked: limits.soft(Resource::LockedMemory),
    }
}

/// Bytes that the caller may lock.
fn lock_limit(call: &Call) -> u64 {
    if call.thread.credentials().is_capable(Capability::LockMemory) {
        u64::MAX
    } else {
        call.process().limits.soft(Resource::LockedMemory)
    }
}

/// The limits of the caller's process hold for its address space from now on.
pub fn update_limits(call: &Call) {
    let mut limits = limits_of(&call.process().limits);
    limits.locked = lock_limit(call);
    call.thread.space().set_limits(limits);
}

async fn mmap(call: &Call) -> SysResult {
    let (address, length) = (call.argument(0), call.argument(1));
    let raw_protection = call.argument(2) as u32;
    let raw_flags = call.argument(3) as u32;
    let flags = MapFlags::from_bits_truncate(raw_flags);
    let kind = raw_flags & MAP_TYPE;
    let offset = call.argument(5);
    if !is_page_aligned(offset) {
        return Err(Errno::EINVAL);
    }
    let file = if flags.contains(MapFlags::ANONYMOUS) {
        None
    } else {
        let file = call.file(4)?;
        if file.is_path_only() {
            return Err(Errno::EBADF);
        }
        Some(file)
    };
    if flags.contains(MapFlags::HUGETLB) {
        // There are no huge pages: what a Linux without any in its pool answers.
        return Err(if file.is_some() { Errno::EINVAL } else { Errno::ENOMEM });
    }
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let is_exact = flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE);
    let hint = page_floor(address);
    let length = page_ceil(length).filter(|length| *length > 0).ok_or(Errno::ENOMEM)?;
    if length > USER_END || (is_exact && address > USER_END - length) {
        return Err(Errno::ENOMEM);
    }
    if is_exact && !is_page_aligned(address) {
        return Err(Errno::EINVAL);
    }
    let space = call.thread.space();
    if flags.contains(MapFlags::FIXED_NOREPLACE) && !space.is_free(address..address + length) {
        return Err(Errno::EEXIST);
    }
    update_limits(call);
    let limit = lock_limit(call);
    if flags.contains(MapFlags::LOCKED) && limit == 0 {
        return Err(Errno::EPERM);
    }
    if file.is_some() && offset / PAGE + length / PAGE > MOST_FILE_PAGES {
        return Err(Errno::EOVERFLOW);
    }
    let mut protection = Protection::from_bits_truncate(raw_protection);
    let personality = call.process().personality.load(Ordering::Relaxed);
    if protection.contains(Protection::READ) && personality & READ_IMPLIES_EXEC != 0 {
        protection |= Protection::EXECUTE;
    }
    let request = MapRequest {
        place: if flags.contains(MapFlags::FIXED_NOREPLACE) {
            Place::FixedIfFree(address)
        } else if is_exact {
            Place::Fixed(address)
        } else {
            Place::Anywhere { hint, is_low: flags.contains(MapFlags::BIT32) }
        },
        protection,
        may_be_low: call.thread.credentials().is_capable(Capability::RawIo),
        ..MapRequest::anonymous(length, protection)
    };
    let request = match &file {
        Some(file) => of_file(call, request, file, kind, raw_flags, offset / PAGE)?,
        None => of_memory(request, kind, flags)?,
    };
    let mut request = request;
    request.flags.set(AreaFlags::LOCKED, flags.contains(MapFlags::LOCKED));
    request.flags.set(AreaFlags::NO_RESERVE, flags.contains(MapFlags::NORESERVE));
    let start = {
        let mut change = space.begin_change().await;
        if is_exact {
            // What is there goes in turns; nobody sees the hole.
            make_room(call, &mut change, address..address + length, &request).await?;
        }
        space.map(request)?
    };
    let is_lazy = flags.contains(MapFlags::NONBLOCK) || !flags.contains(MapFlags::POPULATE);
    if flags.contains(MapFlags::LOCKED) || !is_lazy {
        populate(call, &space, start..start + length).await;
    }
    Ok(start)
}

fn of_memory(mut request: MapRequest, kind: u32, flags: MapFlags) -> Result<MapRequest, Errno> {
    match kind {
        MAP_SHARED => {
            if flags.contains(MapFlags::GROWSDOWN) {
                return Err(Errno::EINVAL);
            }
            let source = SharedStore::new(request.length);
            let object = Arc::new(Object { source, name: b"/dev/zero (deleted)".to_vec() });
            request.backing = Backing::Object { object, first_page: 0 };
            request.flags |= AreaFlags::SHARED;
        }
        MAP_PRIVATE => {
            if flags.contains(MapFlags::GROWSDOWN) {
                request.flags |= AreaFlags::GROWS_DOWN;
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(request)
}

/// The flags that `MAP_SHARED_VALIDATE` knows.
const KNOWN_FLAGS: MapFlags = MapFlags::all().difference(MapFlags::SYNC);

fn of_file(
    call: &Call,
    mut request: MapRequest,
    file: &Arc<OpenFile>,
    kind: u32,
    raw_flags: u32,
    first_page: u64,
) -> Result<MapRequest, Errno> {
    let flags = file.flags();
    let is_shared = match kind {
        MAP_SHARED => true,
        MAP_SHARED_VALIDATE => {
            if raw_flags & !(MAP_TYPE | KNOWN_FLAGS.bits()) != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            true
        }
        MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    let writes = request.protection.contains(Protection::WRITE);
    if is_shared && writes && !flags.writes() {
        return Err(Errno::EACCES);
    }
    if !flags.reads() {
        return Err(Errno::EACCES);
    }
    let is_no_exec = file.location().mount.flags() & abi::fs::mount::MS_NOEXEC != 0;
    if is_no_exec {
        if request.protection.contains(Protection::EXECUTE) {
            return Err(Errno::EPERM);
        }
        request.allowed.remove(Protection::EXECUTE);
    }
    let mapping = file.file().mapping();
    if mapping == Mapping::None {
        return Err(Errno::ENODEV);
    }
    if MapFlags::from_bits_truncate(raw_flags).contains(MapFlags::GROWSDOWN) {
        return Err(Errno::EINVAL);
    }
    if is_shared {
        check_seals(file, writes)?;
        if !flags.writes() || is_write_sealed(file) {
            request.allowed.remove(Protection::WRITE);
        }
        request.flags |= AreaFlags::SHARED;
    }
    if mapping == Mapping::Anonymous {
        return of_memory(
            request,
            if is_shared { MAP_SHARED } else { MAP_PRIVATE },
            MapFlags::empty(),
        );
    }
    let name = fs::mount::display_path(file.location(), &call.thread.directory().root());
    let is_writable = is_shared && request.allowed.contains(Protection::WRITE);
    let source = FileSource::of_open_file(file, is_writable)?;
    if is_shared && source.tracks_writes() {
        request.flags |= AreaFlags::TRACKED;
    }
    let object = Arc::new(Object { source, name });
    request.backing = Backing::Object { object, first_page };
    Ok(request)
}

fn is_write_sealed(file: &OpenFile) -> bool {
    let seals = file.inode().seals().unwrap_or(Seals::empty());
    seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE)
}

fn check_seals(file: &OpenFile, writes: bool) -> Result<(), Errno> {
    if writes && is_write_sealed(file) { Err(Errno::EPERM) } else { Ok(()) }
}

/// A page-aligned start and a length that is rounded up; `None` when the end overflows.
fn rounded(start: u64, length: u64) -> Option<Range<u64>> {
    let end = start.checked_add(page_ceil(length)?)?;
    Some(start..end)
}

async fn msync(call: &Call) -> SysResult {
    let (start, flags) = (call.argument(0), call.unsigned(2));
    if flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0
        || !is_page_aligned(start)
        || flags & (MS_ASYNC | MS_SYNC) == MS_ASYNC | MS_SYNC
    {
        return Err(Errno::EINVAL);
    }
    let range = rounded(start, call.argument(1)).ok_or(Errno::ENOMEM)?;
    if range.is_empty() {
        return Ok(0);
    }
    let invalidates = flags & MS_INVALIDATE != 0;
    let (objects, is_mapped) = call.thread.space().shared_sources(range, invalidates)?;
    if flags & MS_SYNC != 0 {
        let mut pace = Pace::new();
        for object in objects {
            object.source.sync()?;
            pace.spend(&call.thread, SMALL_PIECE).await.map_err(|_| Errno::EINTR)?;
        }
    }
    if is_mapped { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// `mincore(start, length, vector)`: area by area, so that what comes before a hole is told.
async fn mincore(call: &Call) -> SysResult {
    let (start, length) = (call.argument(0), call.argument(1));
    if !is_page_aligned(start) {
        return Err(Errno::EINVAL);
    }
    if !is_user_range(start, length) {
        return Err(Errno::ENOMEM);
    }
    let range = rounded(start, length).ok_or(Errno::ENOMEM)?;
    let pages = (range.end - range.start) / PAGE;
    if !is_user_range(call.argument(2), pages) {
        return Err(Errno::EFAULT);
    }
    let space = call.thread.space();
    let mut at = range.start;
    let mut into = call.argument(2);
    let mut pace = Pace::new();
    while at < range.end {
        let piece = space.piece(at..range.end).filter(|piece| piece.start == at);
        let piece = piece.ok_or(Errno::ENOMEM)?;
        at = piece.end;
        let residency = space.residency(piece)?;
        call.user().write_bytes(into, &residency).await?;
        into += residency.len() as u64;
        pace.spend(&call.thread, residency.len() as u64).await.map_err(|_| Errno::EINTR)?;
    }
    Ok(0)
}

async fn madvise(call: &Call) -> SysResult {
    let (start, length) = (call.argument(0), call.argument(1));
    let advice = Advice::from_number(call.unsigned(2)).ok_or(Errno::EINVAL)?;
    if !is_page_aligned(start) {
        return Err(Errno::EINVAL);
    }
    let range = rounded(start, length).ok_or(Errno::EINVAL)?;
    if range.is_empty() {
        return Ok(0);
    }
    // Nothing can be mapped above; a range that goes beyond has a hole.
    let space = call.thread.space();
    if range.end > USER_END {
        return Err(Errno::ENOMEM);
    }
    let change = space.begin_change().await;
    if let Some(mark) = space.check_mark(range.clone(), advice)? {
        let mut change = change;
        let end = range.end;
        in_turns(&call.thread, range.start, |at| Ok(change.mark_part(at..end, mark))).await?;
        return if space.is_mapped(range) { Ok(0) } else { Err(Errno::ENOMEM) };
    }
    drop(change);
    let is_strict = matches!(advice, Advice::PopulateRead | Advice::PopulateWrite);
    let is_long = range.end - range.start > PAGES_AT_ONCE * PAGE;
    let touches_pages = is_strict
        || matches!(
            advice,
            Advice::WillNeed
                | Advice::Remove
                | Advice::DontNeed
                | Advice::DontNeedLocked
                | Advice::Free
        );
    if !is_long || !touches_pages {
        space.advise(range, advice).await?;
        return Ok(0);
    }
    advise_in_turns(call, &space, range, advice).await?;
    Ok(0)
}

/// Carries out advice for a range of any length, a part at a time.
async fn advise_in_turns(
    call: &Call,
    space: &AddressSpace,
    range: Range<u64>,
    advice: Advice,
) -> Result<(), Errno> {
    let is_strict = matches!(advice, Advice::PopulateRead | Advice::PopulateWrite);
    let mut pace = Pace::new();
    let mut at = range.start;
    let mut is_covered = true;
    let next = |at| match advice {
        Advice::DontNeed | Advice::DontNeedLocked | Advice::Free => {
            space.present_piece(at..range.end)
        }
        _ => space.piece(at..range.end),
    };
    while let Some(piece) = next(at) {
        is_covered &= piece.start == at;
        if is_strict && !is_covered {
            break;
        }
        at = piece.end;
        let pages = (piece.end - piece.start) / PAGE;
        // A piece that ends before its pages do is as long as one may be.
        let pages = if 2 * pages > PAGES_AT_ONCE { PAGES_AT_ONCE } else { pages };
        let result = space.advise(piece, advice).await;
        if advice == Advice::Remove {
            mapped::settled(&call.thread).await;
        }
        match result {
            // The area has gone meanwhile.
            Err(Errno::ENOMEM) if !is_strict => is_covered = false,
            result => result?,
        }
        pace.spend(&call.thread, pages.max(SMALL_PIECE)).await.map_err(|_| Errno::EINTR)?;
    }
    if is_covered && at == range.end { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Pages as which a piece counts that has fewer.
const SMALL_PIECE: u64 = 8;

/// Brings in the pages of a range, as far as that goes.
async fn populate(call: &Call, space: &AddressSpace, range: Range<u64>) {
    let mut pace = Pace::new();
    let mut at = range.start;
    while let Some(piece) = space.piece(at..range.end) {
        at = piece.end;
        let pages = (piece.end - piece.start) / PAGE;
        space.populate(piece).await;
        if pace.spend(&call.thread, pages.max(SMALL_PIECE)).await.is_err() {
            return;
        }
    }
}

/// The first of the pages that a range given in bytes touches, and their size in bytes. A size past the end of the
/// number range wraps around, as on Linux.
fn touched(start: u64, length: u64) -> (u64, u64) {
    let size = length.wrapping_add(start % PAGE).wrapping_add(PAGE - 1);
    (page_floor(start), page_floor(size))
}

/// The range of `touched`. `EINVAL` when it ends before it begins.
fn range_of((start, size): (u64, u64)) -> Result<Range<u64>, Errno> {
    Ok(start..start.checked_add(size).ok_or(Errno::EINVAL)?)
}

async fn mlock(call: &Call, flags: u32) -> SysResult {
    if flags & !MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    let limit = lock_limit(call);
    if limit == 0 {
        return Err(Errno::EPERM);
    }
    let touched = touched(call.argument(0), call.argument(1));
    if touched.1 > limit {
        return Err(Errno::ENOMEM);
    }
    let range = range_of(touched)?;
    if range.is_empty() {
        return Ok(0);
    }
    let space = call.thread.space();
    set_locked(call, range.clone(), true, limit).await?;
    if flags & MLOCK_ONFAULT == 0 {
        populate(call, &space, range).await;
    }
    Ok(0)
}

async fn set_locked(
    call: &Call,
    range: Range<u64>,
    is_locked: bool,
    limit: u64,
) -> Result<(), Errno> {
    let mut change = call.thread.space().begin_change().await;
    let result = change.space().check_locked(range.clone(), is_locked, limit)?;
    let part = |at| Ok(change.lock_part(at..range.end, is_locked));
    in_turns(&call.thread, range.start, part).await?;
    result
}

async fn munlock(call: &Call) -> SysResult {
    let range = range_of(touched(call.argument(0), call.argument(1)))?;
    if !range.is_empty() {
        set_locked(call, range, false, u64::MAX).await?;
    }
    Ok(0)
}

async fn mlockall(call: &Call) -> SysResult {
    let flags = call.unsigned(0);
    if flags == 0 || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || flags == MCL_ONFAULT
    {
        return Err(Errno::EINVAL);
    }
    let limit = lock_limit(call);
    if limit == 0 {
        return Err(Errno::EPERM);
    }
    let space = call.thread.space();
    set_all_locked(call, flags & MCL_CURRENT != 0, flags & MCL_FUTURE != 0, limit).await?;
    if flags & MCL_CURRENT != 0 && flags & MCL_ONFAULT == 0 {
        populate(call, &space, 0..USER_END).await;
    }
    Ok(0)
}

async fn munlockall(call: &Call) -> SysResult {
    set_all_locked(call, false, false, u64::MAX).await?;
    Ok(0)
}

async fn set_all_locked(call: &Call, current: bool, future: bool, limit: u64) -> Result<(), Errno> {
    let mut change = call.thread.space().begin_change().await;
    change.space().set_future_locked(current, future, limit)?;
    if current || !future {
        in_turns(&call.thread, 0, |at| Ok(change.lock_part(at..u64::MAX, current))).await?;
    }
    Ok(())
}

/// Every way into the kernel orders memory, and a barrier interrupts the cores that are in user mode
/// in this address space: the same that a change of the page table does.
fn membarrier(call: &Call) -> SysResult {
    use membarrier::*;
    const REGISTER: u32 = REGISTER_GLOBAL_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
        | REGISTER_PRIVATE_EXPEDITED_RSEQ;
    const PRIVATE: u32 = PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE | PRIVATE_EXPEDITED_RSEQ;
    const GLOBALLY: u32 = GLOBAL | GLOBAL_EXPEDITED;
    const SUPPORTED: u32 = REGISTER | PRIVATE | GLOBALLY | GET_REGISTRATIONS;
    let command = call.unsigned(0);
    let is_for_one = command == PRIVATE_EXPEDITED_RSEQ && call.unsigned(1) == FLAG_CPU;
    if call.unsigned(1) != 0 && !is_for_one {
        return Err(Errno::EINVAL);
    }
    let space = call.thread.space();
    match command {
        QUERY => Ok(u64::from(SUPPORTED)),
        GET_REGISTRATIONS => Ok(space.barrier_registrations()),
        command if command.is_power_of_two() && command & REGISTER != 0 => {
            space.register_barrier(u64::from(command));
            Ok(0)
        }
        GLOBAL | GLOBAL_EXPEDITED => {
            for process in crate::process::table::processes() {
                let found = process.find_thread(|thread| Some(thread.space()));
                let is_meant = |space: &Arc<AddressSpace>| {
                    let registered = space.barrier_registrations();
                    command == GLOBAL || registered & u64::from(REGISTER_GLOBAL_EXPEDITED) != 0
                };
                if let Some(space) = found.filter(is_meant) {
                    space.barrier();
                }
            }
            Ok(0)
        }
        PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE | PRIVATE_EXPEDITED_RSEQ => {
            // A command's registration is the next bit.
            if space.barrier_registrations() & (u64::from(command) << 1) == 0 {
                return Err(Errno::EPERM);
            }
            if command == PRIVATE_EXPEDITED_RSEQ {
                let only = is_for_one.then(|| call.int(2)).filter(|core| *core >= 0);
                interrupt_sequences(call, only);
            }
            space.barrier();
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Has the critical sections of the caller's other threads aborted, of those on one core or on all. They
/// look before they enter user mode again, which the barrier that follows makes them do.
fn interrupt_sequences(call: &Call, core: Option<i32>) {
    call.process().for_each_thread(|thread| {
        let home = thread.core.load(Ordering::Relaxed);
        if core.is_none_or(|core| usize::try_from(core) == Ok(home)) {
            thread.sequence.interrupted();
            thread.signals.raise_attention();
        }
    });
}

/// `process_vm_readv` and `process_vm_writev`.
async fn process_vm(call: &Call, writes: bool) -> SysResult {
    const PAGE_PART: usize = PAGE as usize;
    if call.argument(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let user = call.user();
    let local = user.read_io_vectors(call.argument(1), call.argument(2)).await?;
    if local.iter().all(|vector| vector.length == 0) {
        return Ok(0);
    }
    let remote = user.read_io_vectors(call.argument(3), call.argument(4)).await?;
    let target = crate::process::table::process(Pid(call.int(0))).ok_or(Errno::ESRCH)?;
    let thread = target.main_thread().ok_or(Errno::ESRCH)?;
    let other = UserMemory::new(Observer::of_call(&call.thread).look_into(&thread)?.space);
    // Not in the future: every call would carry it.
    let mut buffer = vec![0; PAGE_PART];
    let mut done = 0_u64;
    let mut pace = Pace::new();
    let mut from = pieces(&remote);
    let mut to = pieces(&local);
    let (mut there, mut here) = (from.next(), to.next());
    while let (Some(far), Some(near)) = (there, here) {
        let length = far.1.min(near.1).min(PAGE);
        if length == 0 {
            if far.1 == 0 {
                there = from.next()
            } else {
                here = to.next()
            }
            continue;
        }
        let part = buffer.get_mut(..length as usize).unwrap_or_default();
        let result = if writes {
            match user.read_bytes(near.0, part).await {
                Ok(()) => other.write_bytes(far.0, part).await,
                Err(error) => Err(error),
            }
        } else {
            match other.read_bytes(far.0, part).await {
                Ok(()) => user.write_bytes(near.0, part).await,
                Err(error) => Err(error),
            }
        };
        match result {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => {}
        }
        done += length;
        if pace.spend(&call.thread, 1).await.is_err() {
            break;
        }
        there = Some((far.0 + length, far.1 - length));
        here = Some((near.0 + length, near.1 - length));
    }
    Ok(done)
}

fn pieces(vectors: &[crate::memory::IoVector]) -> impl Iterator<Item = (u64, u64)> + '_ {
    vectors.iter().map(|vector| (vector.address, vector.length))
}
