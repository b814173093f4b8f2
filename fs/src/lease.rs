//! Leases (`F_SETLEASE`): the holder is told by signal before somebody opens the file in a way that
//! conflicts, who waits until the holder has given way or its time is up.
//!
//! ```text
//! held --conflicting open--> breaking --given up, lowered, or time over--> gone, or shared
//! ```

use crate::file::{OpenFile, Reason};
use crate::inode::Inode;
use crate::lock::LockKind;
use crate::metadata::InodeId;
use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::time;
use base::wait::WaitQueue;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `/proc/sys/fs/lease-break-time`: seconds that a holder has to give way.
pub static BREAK_TIME_S: AtomicU64 = AtomicU64::new(45);
/// `/proc/sys/fs/leases-enable`
pub static ENABLED: AtomicU64 = AtomicU64::new(1);

const NS_PER_SECOND: u64 = 1_000_000_000;

/// What a holder is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// To let others read.
    Lower,
    /// To give the lease up.
    GiveUp,
}

struct Lease {
    holder: Weak<OpenFile>,
    /// Number of the description.
    id: u64,
    /// What the holder calls the file.
    descriptor: i32,
    kind: LockKind,
    /// What is asked of the holder, and until when.
    demand: Option<(Demand, u64)>,
}

/// By inode: whoever opens a file looks at the leases of that file only.
static LEASES: Mutex<BTreeMap<InodeId, Vec<Lease>>> =
    Mutex::new(&rank::FILE_LOCKS, BTreeMap::new());
/// Leases that there are, for who only asks whether there is any.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static CHANGED: WaitQueue = WaitQueue::new();

/// Whether anybody holds a lease on anything.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::SeqCst) > 0
}

/// Told whenever a lease is given up or lowered.
pub fn changed() -> &'static WaitQueue {
    &CHANGED
}

/// Takes or changes the lease of a description. The caller has checked who else has the file open.
///
/// # Errors
/// `EAGAIN` when somebody else's lease stands against it, `EINVAL` when leases are switched off, `ENOMEM`.
pub fn take(file: &Arc<OpenFile>, descriptor: i32, kind: LockKind) -> Result<(), Errno> {
    if ENABLED.load(Ordering::Relaxed) == 0 {
        return Err(Errno::EINVAL);
    }
    let inode = file.inode().id();
    {
        let mut all = LEASES.lock();
        let leases = tree::get_or_insert(&mut all, inode, Vec::new);
        for lease in leases.iter().filter(|lease| lease.id != file.id()) {
            let is_going = matches!(lease.demand, Some((Demand::GiveUp, _)));
            if kind == LockKind::Exclusive || lease.kind == LockKind::Exclusive || is_going {
                return Err(Errno::EAGAIN);
            }
        }
        if let Some(own) = leases.iter_mut().find(|lease| lease.id == file.id()) {
            own.kind = kind;
            own.descriptor = descriptor;
            if kind == LockKind::Shared && matches!(own.demand, Some((Demand::Lower, _))) {
                own.demand = None;
            }
        } else {
            if leases.try_reserve(1).is_err() {
                if leases.is_empty() {
                    all.remove(&inode);
                }
                return Err(Errno::ENOMEM);
            }
            let holder = Arc::downgrade(file);
            let id = file.id();
            leases.push(Lease { holder, id, descriptor, kind, demand: None });
            COUNT.fetch_add(1, Ordering::SeqCst);
            file.note_lease();
        }
    }
    CHANGED.wake_all();
    Ok(())
}

/// Gives the lease of a description up; whether there was one.
pub fn give_up(file: &OpenFile) -> bool {
    if !any() {
        return false;
    }
    let removed = remove(&mut LEASES.lock(), file.inode().id(), |lease| lease.id == file.id());
    if removed > 0 {
        CHANGED.wake_all();
    }
    removed > 0
}

/// Takes leases of one inode out; how many.
fn remove(
    all: &mut BTreeMap<InodeId, Vec<Lease>>,
    inode: InodeId,
    goes: impl Fn(&Lease) -> bool,
) -> usize {
    let Some(leases) = all.get_mut(&inode) else { return 0 };
    let before = leases.len();
    leases.retain(|lease| !goes(lease));
    let removed = before - leases.len();
    if leases.is_empty() {
        all.remove(&inode);
    }
    COUNT.fetch_sub(removed, Ordering::SeqCst);
    removed
}

/// The lease of a description as it will be once the holder has done what is asked.
pub fn of(file: &OpenFile) -> Option<LockKind> {
    let all = LEASES.lock();
    let lease = all.get(&file.inode().id())?.iter().find(|lease| lease.id == file.id())?;
    match lease.demand {
        None => Some(lease.kind),
        Some((Demand::Lower, _)) => Some(LockKind::Shared),
        Some((Demand::GiveUp, _)) => None,
    }
}

/// Asks the holders of leases that stand against opening an inode to give way. `None` when none does (any
/// more), else until when to wait.
pub fn ask(inode: &Arc<dyn Inode>, writes: bool) -> Option<u64> {
    if !any() {
        return None;
    }
    let now_ns = time::now_ns();
    let mut told: Vec<(Arc<OpenFile>, i32)> = Vec::new();
    let mut deadline_ns = None;
    let mut has_changed = false;
    {
        let mut all = LEASES.lock();
        let id = inode.id();
        let removed = remove(&mut all, id, |lease| {
            let is_over = lease.demand.is_some_and(|(_, deadline_ns)| deadline_ns <= now_ns);
            is_over && matches!(lease.demand, Some((Demand::GiveUp, _)))
        });
        has_changed |= removed > 0;
        for lease in all.get_mut(&id).into_iter().flatten() {
            if lease.demand.is_some_and(|(_, deadline_ns)| deadline_ns <= now_ns) {
                lease.kind = LockKind::Shared;
                lease.demand = None;
                has_changed = true;
            }
            if !writes && lease.kind == LockKind::Shared {
                continue;
            }
            let wanted = if writes { Demand::GiveUp } else { Demand::Lower };
            let until = match lease.demand {
                Some((demand, until)) if demand == Demand::GiveUp || demand == wanted => until,
                _ => {
                    let seconds = BREAK_TIME_S.load(Ordering::Relaxed);
                    let until = now_ns.saturating_add(seconds.saturating_mul(NS_PER_SECOND));
                    lease.demand = Some((wanted, until));
                    told.extend(lease.holder.upgrade().map(|holder| (holder, lease.descriptor)));
                    until
                }
            };
            deadline_ns = Some(deadline_ns.map_or(until, |least: u64| least.min(until)));
        }
    }
    for (holder, descriptor) in told {
        holder.signal_owner(descriptor, Reason::Message);
    }
    if has_changed {
        CHANGED.wake_all();
    }
    deadline_ns
}
