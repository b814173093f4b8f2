//! The tree of processes: all numbers, and who belongs to whom.
//!
//! One table under one lock (`PROCESS_TREE`, the first lock of all) maps a number to what it names: a
//! thread, a process, a group, a session, or several of them. Parents, children and group members are
//! linked by number inside the table, so there are no cycles of references and no allocation for a
//! link. The lock is held for a few steps at a time, never across a wait. Signals may be sent while
//! it is held (`crate::signal` never locks the tree on that way).
//!
//! Numbers are handed out in rising order and start again after `PID_LIMIT`; a number is free when it
//! names nothing. Slots lie in chunks of 64, which come and go as they are needed.

mod lists;
mod numbers;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use core::sync::atomic::{AtomicUsize, Ordering};

use base::sync::{Mutex, MutexGuard, Once, rank};
use fs::terminal::Terminal;

use super::ids::{INIT, PID_LIMIT, Pid, Tid};
use super::process::Process;
use super::thread::Thread;
use lists::{Link, List, Members};
pub(super) use numbers::ReservedNumber;
use numbers::{Chunk, FIRST_AFTER_WRAP, split};

/// Frames of memory for each thread that may exist: its page tables, its first pages and what the
/// kernel keeps of it.
const FRAMES_PER_THREAD: usize = 32;
/// Fewest threads that may exist, however small the memory is.
const LEAST_THREAD_LIMIT: usize = 64;

static TREE: Mutex<Tree> = Mutex::new(&rank::PROCESS_TREE, Tree::new());
static INIT_PROCESS: Once<Arc<Process>> = Once::new();
static THREAD_LIMIT: AtomicUsize = AtomicUsize::new(LEAST_THREAD_LIMIT);

/// What a number names.
#[derive(Default)]
struct Slot {
    thread: Option<Arc<Thread>>,
    node: Option<Node>,
    group: Option<Members>,
    session: Option<Session>,
}

/// A process in the tree, from its making until it is reaped.
struct Node {
    process: Arc<Process>,
    children: Members,
    siblings: Link,
    group_members: Link,
    /// It has ended and waits for its parent.
    is_zombie: bool,
}

impl Node {
    fn new(process: &Arc<Process>) -> Node {
        Node {
            process: process.clone(),
            children: Members::default(),
            siblings: Link::default(),
            group_members: Link::default(),
            is_zombie: false,
        }
    }
}

#[derive(Default)]
struct Session {
    /// Processes in it.
    members: usize,
    terminal: Option<Arc<Terminal>>,
}

/// All numbers; guarded by the tree's lock.
pub(super) struct Tree {
    chunks: Vec<Option<Box<Chunk>>>,
    last_number: i32,
    thread_count: usize,
    process_count: usize,
    zombie_count: usize,
    created: u64,
    threads_of_user: BTreeMap<u32, usize>,
}

/// What exists now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Threads that have not ended.
    pub threads: usize,
    /// Processes, zombies and the kernel's own first one included.
    pub processes: usize,
    /// Processes that have ended and wait for their parent.
    pub zombies: usize,
    /// Processes made since boot.
    pub created: u64,
}

/// Locks the tree.
pub(super) fn lock() -> MutexGuard<'static, Tree> {
    TREE.lock()
}

impl Tree {
    const fn new() -> Tree {
        Tree {
            chunks: Vec::new(),
            last_number: 0,
            thread_count: 0,
            process_count: 0,
            zombie_count: 0,
            created: 0,
            threads_of_user: BTreeMap::new(),
        }
    }

    fn slot(&self, number: i32) -> Option<&Slot> {
        let (chunk, index) = split(number)?;
        self.chunks.get(chunk)?.as_ref()?.slots.get(index)
    }

    fn slot_mut(&mut self, number: i32) -> Option<&mut Slot> {
        let (chunk, index) = split(number)?;
        self.chunks.get_mut(chunk)?.as_mut()?.slots.get_mut(index)
    }

    fn node(&self, number: i32) -> Option<&Node> {
        self.slot(number)?.node.as_ref()
    }

    fn node_mut(&mut self, number: i32) -> Option<&mut Node> {
        self.slot_mut(number)?.node.as_mut()
    }

    fn join_group(&mut self, group: Pid, process: &Process) {
        if let Some(slot) = self.slot_mut(group.0) {
            slot.group.get_or_insert_default();
        }
        self.append(List::Group, group.0, process.pid.0);
        process.group.store(group.0, Ordering::Relaxed);
    }

    fn leave_group(&mut self, process: &Process) {
        let group = process.group();
        self.unlink(List::Group, group.0, process.pid.0);
        if let Some(slot) = self.slot_mut(group.0)
            && slot.group.is_some_and(|members| members.first == 0)
        {
            slot.group = None;
        }
        self.release_if_empty(group.0);
    }

    fn join_session(&mut self, session: Pid, process: &Process) {
        if let Some(slot) = self.slot_mut(session.0) {
            slot.session.get_or_insert_default().members += 1;
        }
        process.session.store(session.0, Ordering::Relaxed);
    }

    fn leave_session(&mut self, process: &Process) {
        let session = process.session();
        if let Some(slot) = self.slot_mut(session.0)
            && let Some(entry) = &mut slot.session
        {
            entry.members = entry.members.saturating_sub(1);
            if entry.members == 0 {
                slot.session = None;
            }
        }
        self.release_if_empty(session.0);
    }

    /// Puts the first process into the empty tree, leading its own group and session.
    fn insert_root(&mut self, process: &Arc<Process>) {
        // Number 0 names nothing, for ever.
        let taken = self.mark_taken(0, 0).and_then(|()| self.mark_taken(0, INIT.0 as usize));
        if taken.is_err() {
            return;
        }
        self.last_number = INIT.0;
        if let Some(slot) = self.slot_mut(INIT.0) {
            slot.node = Some(Node::new(process));
        }
        self.join_session(INIT, process);
        self.join_group(INIT, process);
        self.process_count = 1;
    }

    /// Puts a process into the tree as a child of `parent`, in the group and session of `like`.
    pub(super) fn insert_process(
        &mut self,
        process: &Arc<Process>,
        parent: &Arc<Process>,
        like: &Process,
    ) {
        let pid = process.pid;
        if let Some(slot) = self.slot_mut(pid.0) {
            slot.node = Some(Node::new(process));
        }
        process.set_parent(parent);
        self.append(List::Siblings, parent.pid.0, pid.0);
        self.join_group(like.group(), process);
        self.join_session(like.session(), process);
        self.process_count += 1;
        self.created += 1;
    }

    /// Gives a thread's number its meaning.
    pub(super) fn insert_thread(&mut self, number: ReservedNumber, thread: &Arc<Thread>) {
        number.keep();
        let user = thread.credentials().user.real;
        thread.counted_user.store(user, Ordering::Relaxed);
        *tree::get_or_insert(&mut self.threads_of_user, user, || 0) += 1;
        self.thread_count += 1;
        if let Some(slot) = self.slot_mut(thread.tid().0) {
            slot.thread = Some(thread.clone());
        }
    }

    fn uncount_user(&mut self, user: u32) {
        if let Some(count) = self.threads_of_user.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.threads_of_user.remove(&user);
            }
        }
    }

    /// Takes a thread that has ended out of the table.
    pub(super) fn remove_thread(&mut self, thread: &Thread) -> Option<Arc<Thread>> {
        let number = thread.tid().0;
        let removed = self.slot_mut(number).and_then(|slot| slot.thread.take());
        if removed.is_some() {
            self.uncount_user(thread.counted_user.load(Ordering::Relaxed));
            self.thread_count -= 1;
        }
        self.release_if_empty(number);
        removed
    }

    /// Gives a thread the number of its process's leader, which has ended.
    pub(super) fn rename_thread(&mut self, thread: &Arc<Thread>, number: Tid) {
        let old = thread.tid();
        if let Some(slot) = self.slot_mut(old.0) {
            slot.thread = None;
        }
        thread.set_tid(number);
        if let Some(slot) = self.slot_mut(number.0) {
            slot.thread = Some(thread.clone());
        }
        self.release_if_empty(old.0);
    }

    /// Takes a process out of the tree for good.
    pub(super) fn remove_process(&mut self, process: &Process) {
        let number = process.pid.0;
        self.unlink(List::Siblings, process.parent_pid().0, number);
        self.leave_group(process);
        self.leave_session(process);
        let node = self.slot_mut(number).and_then(|slot| slot.node.take());
        if let Some(node) = &node {
            self.process_count -= 1;
            if node.is_zombie {
                self.zombie_count -= 1;
            }
        }
        self.release_if_empty(number);
    }

    /// Marks a process as ended.
    pub(super) fn set_zombie(&mut self, process: &Process) {
        if let Some(node) = self.node_mut(process.pid.0)
            && !core::mem::replace(&mut node.is_zombie, true)
        {
            self.zombie_count += 1;
        }
    }

    /// Whether a process has ended and waits to be reaped.
    pub(super) fn is_zombie(&self, pid: Pid) -> bool {
        self.node(pid.0).is_some_and(|node| node.is_zombie)
    }

    /// The process of this number, zombies included.
    pub(super) fn process(&self, pid: Pid) -> Option<&Arc<Process>> {
        self.node(pid.0).map(|node| &node.process)
    }

    /// Makes a process a child of `heir`.
    pub(super) fn move_child(&mut self, child: &Process, heir: &Arc<Process>) {
        self.unlink(List::Siblings, child.parent_pid().0, child.pid.0);
        child.set_parent(heir);
        self.append(List::Siblings, heir.pid.0, child.pid.0);
    }

    /// Moves a process to another group.
    pub(super) fn set_group(&mut self, process: &Process, group: Pid) {
        if process.group() != group {
            self.leave_group(process);
            self.join_group(group, process);
        }
    }

    /// Makes a process the leader of a new session and of a new group in it.
    pub(super) fn start_session(&mut self, process: &Process) {
        self.leave_group(process);
        self.leave_session(process);
        self.join_session(process.pid, process);
        self.join_group(process.pid, process);
    }

    /// Whether the number names a group.
    pub(super) fn has_group(&self, group: Pid) -> bool {
        self.slot(group.0).is_some_and(|slot| slot.group.is_some())
    }

    /// The terminal of a session.
    pub(super) fn terminal(&self, session: Pid) -> Option<Arc<Terminal>> {
        self.slot(session.0)?.session.as_ref()?.terminal.clone()
    }

    /// Sets the terminal of a session and returns the old one, which the caller drops after it has
    /// given up the lock.
    pub(super) fn set_terminal(
        &mut self,
        session: Pid,
        terminal: Option<Arc<Terminal>>,
    ) -> Option<Arc<Terminal>> {
        match self.slot_mut(session.0).and_then(|slot| slot.session.as_mut()) {
            Some(entry) => core::mem::replace(&mut entry.terminal, terminal),
            None => terminal,
        }
    }

    /// The process that adopts the children of one that ends: the nearest subreaper above it, else
    /// the first process.
    pub(super) fn heir(&self, process: &Process) -> Option<Arc<Process>> {
        let mut pid = process.parent_pid();
        while let Some(node) = self.node(pid.0) {
            let candidate = &node.process;
            let is_alive = candidate.thread_count() > 0;
            if pid == INIT
                || (candidate.is_subreaper.load(Ordering::Relaxed) && !node.is_zombie && is_alive)
            {
                return Some(candidate.clone());
            }
            pid = candidate.parent_pid();
        }
        self.node(INIT.0).map(|node| node.process.clone())
    }

    /// Whether a group has no member with a parent in another group of the same session, leaving
    /// `ignored` out of account.
    pub(super) fn is_group_orphaned(&self, group: Pid, ignored: Option<Pid>) -> bool {
        !self.group(group).any(|(process, is_zombie)| {
            if is_zombie || ignored == Some(process.pid) {
                return false;
            }
            let Some(parent) = self.process(process.parent_pid()) else { return false };
            parent.pid != INIT && parent.group() != group && parent.session() == process.session()
        })
    }

    /// Whether a member of a group is stopped.
    pub(super) fn has_stopped_member(&self, group: Pid) -> bool {
        self.group(group).any(|(process, _)| process.signals.is_stopped())
    }

    fn all(&self) -> impl Iterator<Item = &Node> {
        self.chunks
            .iter()
            .flatten()
            .flat_map(|chunk| chunk.slots.iter())
            .filter_map(|slot| slot.node.as_ref())
    }
}

/// Makes the first process. It has no threads and no parent, leads group and session 1, and reaps
/// orphans. Called once at boot; later calls change nothing.
pub fn start(make: impl FnOnce(u64) -> Process) -> &'static Arc<Process> {
    INIT_PROCESS.call_once(|| {
        let limit = (base::memory::frame_counts().total / FRAMES_PER_THREAD)
            .clamp(LEAST_THREAD_LIMIT, PID_LIMIT as usize - FIRST_AFTER_WRAP as usize);
        THREAD_LIMIT.store(limit, Ordering::Relaxed);
        let process = Arc::new(make(limit as u64 / 2));
        lock().insert_root(&process);
        process
    })
}

/// The first process, once it has been made.
pub fn init() -> Option<&'static Arc<Process>> {
    INIT_PROCESS.get()
}

/// The thread of this number.
pub fn thread(tid: Tid) -> Option<Arc<Thread>> {
    lock().slot(tid.0)?.thread.clone()
}

/// As [`thread`]; for process 1, which has no threads, the one that stands for it.
pub fn thread_or_init(tid: Tid) -> Option<Arc<Thread>> {
    let found = thread(tid);
    if found.is_none() && tid == INIT.leader() { super::first::stand_in() } else { found }
}

/// The process of this number, zombies included.
pub fn process(pid: Pid) -> Option<Arc<Process>> {
    lock().process(pid).cloned()
}

/// The process of this number, or that has a thread of this number.
pub fn find_process(number: i32) -> Option<Arc<Process>> {
    let tree = lock();
    let slot = tree.slot(number)?;
    match (&slot.thread, &slot.node) {
        (Some(thread), _) => Some(thread.process.clone()),
        (None, node) => node.as_ref().map(|node| node.process.clone()),
    }
}

/// Whether the number names a process that has ended and was not reaped.
pub fn is_zombie(pid: Pid) -> bool {
    lock().is_zombie(pid)
}

/// All processes, by number, zombies included; without the first one, which runs no program.
pub fn processes() -> Vec<Arc<Process>> {
    lock().all().filter(|node| node.process.pid != INIT).map(|node| node.process.clone()).collect()
}

/// Whether a group is orphaned: no member has a parent in another group of the same session.
pub fn is_orphaned(group: Pid) -> bool {
    lock().is_group_orphaned(group, None)
}

/// The members of a group, zombies included; empty when there is no such group.
pub fn group_members(group: Pid) -> Vec<Arc<Process>> {
    lock().group(group).map(|(process, _)| process.clone()).collect()
}

/// What exists now.
pub fn counts() -> Counts {
    let tree = lock();
    Counts {
        threads: tree.thread_count,
        processes: tree.process_count,
        zombies: tree.zombie_count,
        created: tree.created,
    }
}

/// The number that was handed out last.
pub fn last_number() -> i32 {
    lock().last_number
}

/// The most threads that may exist.
pub fn thread_limit() -> usize {
    THREAD_LIMIT.load(Ordering::Relaxed)
}

/// Counts a thread for another user from now on.
pub(super) fn count_for_user(thread: &Thread, user: u32) {
    let mut tree = lock();
    let old = thread.counted_user.swap(user, Ordering::Relaxed);
    tree.uncount_user(old);
    *tree::get_or_insert(&mut tree.threads_of_user, user, || 0) += 1;
}
