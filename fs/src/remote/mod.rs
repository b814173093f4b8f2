//! Files of the host, through a server of 9P2000.L (`ferry run --share`, `mount -t 9p`).
//!
//! ```text
//!  Inode method ── in the cache and fresh? ──> answer
//!         └── `Remote::ask` ── task: client ──> server … result in an `Answer`; the method is repeated
//! ```
//!
//! Every question is a task of its own, which ends whatever becomes of the caller. Its result stays in an
//! `Answer` that only the caller keeps alive; the repeated method finds it by the question, and only then
//! brings the cache up to date. While a change is under way or its result has not been taken, what is
//! cached of the inodes that it touches stays as it was: so a handler that is repeated from its start
//! finds the same things again.
//!
//! Names, attributes and listings are believed for `Options::fresh_ns`; then the server is asked again, and
//! pages are dropped when size or time of change differ. What this kernel changes it sees at once; what
//! the host changes, after that time. Writes go to the server at once and in order per file, without the
//! writer waiting for the answer; `fsync`, `truncate` and reads of what is not cached wait for them, and a
//! failed one is told by every write until `fsync` has told it.
//!
//! The server is not trusted: names are checked, and what does not fit is `EIO`. A share is not left: names
//! with slashes and `..` are never sent, and symbolic links are followed by the guest, in its own tree.
//!
//! Locks: the state of a node, then `Remote::shared`; never two nodes at a time. None across a wait.
//!
//! Left out: extended attributes of 9P, locks that the host sees, shared writable mappings, opening named pipes
//! and sockets.

mod content;
pub mod dirty;
mod extra;
mod inode;
mod mapped;
mod nine;
mod node;
mod question;
pub(crate) mod server;
pub mod wire;
mod writing;

pub use node::Node;
pub use server::Attributes;

use crate::block::{BareDisk, BlockDevice};
use crate::ext4::{Terms, Volume};
use crate::inode::{
    CacheCounts, FileSystem, FileSystemStatistics, Inode, anonymous_device, sync_with_all,
};
use crate::metadata::NodeKind;
use crate::pending::{self, Answer, Io};
use abi::Errno;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::cpu::CpuId;
use base::device::Exchange;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::{task, time};
use content::PAGE;
use core::future::Future;
use core::sync::atomic::{AtomicU64, Ordering};
use nine::Client;
use question::{Found, Outcome, Question};
pub(crate) use question::{Made, Owner};
use server::{Handle, Server};

/// Most names that are cached, with and without a file.
const MOST_NAMES: usize = 32_768;

/// Most pages that one reader drops to make room.
const MOST_DROPPED: usize = 256;

/// How a share is used.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For how long what the server said is believed, in nanoseconds.
    pub fresh_ns: u64,
    /// The core whose loop carries the questions.
    pub core: CpuId,
}

/// Waits until what was written to these files has arrived, through mappings too.
async fn arrival(writers: Vec<Arc<Node>>) -> Result<(), Errno> {
    for node in writers {
        node.write_back().await?;
        node.written().await;
    }
    Ok(())
}

/// What all inodes of one share have in common.
struct Shared {
    /// Inodes that exist, by number.
    nodes: BTreeMap<u64, Weak<Node>>,
    /// Questions whose results somebody waits for.
    asked: Vec<(Question, Weak<Answer<Outcome>>)>,
    /// Cached names in the order in which they came.
    names: VecDeque<(Weak<Node>, Arc<[u8]>)>,
    /// Cached pages in the order in which they came, and how many there may be.
    pages: VecDeque<(Weak<Node>, u64)>,
    statistics: [u64; 5],
    statistics_ns: u64,
}

/// A connection with a server and what is known of its files.
pub struct Remote {
    server: Server,
    device: u64,
    options: Options,
    /// Held while a directory is noted to lie somewhere, so that no two of them ever contain each other.
    changes: Mutex<()>,
    shared: Mutex<Shared>,
    /// Bytes of all files that are on their way.
    queued: AtomicU64,
    /// Pages of all files that were written to through mappings.
    dirty: AtomicU64,
}

impl Remote {
    /// Asks the server, or takes the result of the same question asked before. `EIOCBQUEUED` while the
    /// answer is under way.
    fn ask<F: Future<Output = Outcome> + Send + 'static>(
        self: &Arc<Remote>,
        question: Question,
        begin: impl FnOnce(Server) -> F,
    ) -> Outcome {
        let is_change = question.is_change();
        let answer = {
            let mut shared = self.shared.lock();
            shared.asked.retain(|(_, answer)| answer.strong_count() > 0);
            let is_answer = |(other, answer): &(Question, Weak<Answer<Outcome>>)| {
                let is_own = || answer.upgrade().is_some_and(|answer| answer.wait().is_own());
                *other == question && (!question.is_about_the_past() || is_own())
            };
            let known = shared.asked.iter().position(is_answer);
            match known {
                Some(index) => {
                    let answer = shared.asked.get(index).and_then(|(_, answer)| answer.upgrade());
                    if let Some(result) = answer.as_ref().and_then(|answer| answer.take()) {
                        shared.asked.swap_remove(index);
                        return result;
                    }
                    answer
                }
                None => None,
            }
        };
        if let Some(answer) = answer {
            return Err(pending::wanted(answer));
        }
        let answer = Arc::new(Answer::new(is_change));
        self.shared.lock().asked.push((question, Arc::downgrade(&answer)));
        let (work, result) = (begin(self.server.clone()), answer.clone());
        // Who gave up waiting left the result to nobody.
        task::spawn(self.options.core, async move { result.set(work.await) })?;
        Err(pending::wanted(answer))
    }

    /// Forgets what was asked about pages of a file, because they have changed since.
    fn spoil_reads(&self, node: u64, chunks: core::ops::Range<u64>) {
        let spoiled = |question: &Question| {
            matches!(question, Question::Read { node: other, chunk }
                if *other == node && chunks.contains(chunk))
        };
        self.shared.lock().asked.retain(|(question, _)| !spoiled(question));
    }

    /// Whether what was fetched at a time may be believed without asking.
    fn is_fresh(&self, number: u64, fetched_ns: u64) -> bool {
        // What this kernel has made old was fetched at 0.
        let is_young =
            fetched_ns != 0 && time::now_ns().saturating_sub(fetched_ns) < self.options.fresh_ns;
        is_young
            || fetched_ns >= pending::fresh_since_ns()
            || self
                .shared
                .lock()
                .asked
                .iter()
                .any(|(question, answer)| question.changes(number) && answer.strong_count() > 0)
    }

    /// Bytes that may still be written: what is free, without what is on its way and a small part that the file
    /// system needs for directories and maps.
    fn free_bytes(&self) -> u64 {
        let [block_size, blocks, free_blocks, ..] = self.shared.lock().statistics;
        let kept = (block_size.saturating_mul(blocks) / 64).clamp(64 << 10, 1 << 20);
        let dirty = self.dirty.load(Ordering::Relaxed).saturating_mul(PAGE);
        let used = kept.saturating_add(self.queued.load(Ordering::Relaxed)).saturating_add(dirty);
        block_size.saturating_mul(free_blocks).saturating_sub(used)
    }

    /// Brings up to date how much is free, where this kernel alone writes.
    async fn count_free(&self, handle: &Handle) {
        if self.server.is_ours_alone()
            && let Ok(statistics) = self.server.statistics(handle).await
        {
            self.shared.lock().statistics = statistics;
        }
    }

    /// The inode of a file that the server told of.
    fn node_of(self: &Arc<Remote>, handle: Handle, attributes: &Attributes) -> Arc<Node> {
        let number = attributes.number;
        let known = self.shared.lock().nodes.get(&number).and_then(Weak::upgrade);
        if let Some(node) = known.filter(|node| node.kind() == attributes.metadata.kind) {
            node.found(Some(handle), attributes);
            return node;
        }
        let node = Node::new(self, handle, attributes);
        tree::insert(&mut self.shared.lock().nodes, number, Arc::downgrade(&node));
        node
    }

    /// Notes where a file was found. `EIO` for a directory that would contain itself.
    fn place(&self, node: &Arc<Node>, parent: &Arc<Node>, name: &Arc<[u8]>) -> Result<(), Errno> {
        let _changes = self.changes.lock();
        if node.kind() == NodeKind::Directory {
            let mut above = Some(parent.clone());
            while let Some(here) = above {
                if Arc::ptr_eq(&here, node) {
                    return Err(Errno::EIO);
                }
                above = here.state.lock().parent.clone();
            }
        }
        node.placed(parent, name);
        Ok(())
    }

    /// Notes a cached name; the oldest ones are forgotten when there are too many.
    fn note_name(&self, directory: &Weak<Node>, name: &Arc<[u8]>) {
        let mut shared = self.shared.lock();
        shared.names.push_back((directory.clone(), name.clone()));
        let oldest = (shared.names.len() > MOST_NAMES).then(|| shared.names.pop_front()).flatten();
        drop(shared);
        if let Some((directory, name)) = oldest
            && let Some(directory) = directory.upgrade()
        {
            directory.forget(&name);
        }
    }

    /// Notes cached pages; the oldest ones are dropped when there are too many.
    fn note_pages(&self, node: &Weak<Node>, pages: impl Iterator<Item = u64>) {
        // A quarter of the memory, or twice that where programs map them.
        let most = (base::memory::frame_counts().total / 4).max(1024);
        let mut old = Vec::new();
        let even_mapped = {
            let mut shared = self.shared.lock();
            shared.pages.extend(pages.map(|page| (node.clone(), page)));
            let even_mapped = shared.pages.len() > 2 * most;
            while shared.pages.len() > most && old.len() < MOST_DROPPED {
                old.extend(shared.pages.pop_front());
            }
            even_mapped
        };
        for (node, page) in old {
            if let Some(kept) = node.upgrade()
                && !kept.drop_page(page, even_mapped)
            {
                self.shared.lock().pages.push_back((node, page));
            }
        }
    }

    /// All inodes that exist.
    fn nodes(&self) -> Vec<Arc<Node>> {
        self.shared.lock().nodes.values().filter_map(Weak::upgrade).collect()
    }
}

/// A share as a file system.
pub struct RemoteFs {
    remote: Arc<Remote>,
    root: Arc<Node>,
}

impl RemoteFs {
    /// Connects with a server and opens its root.
    ///
    /// # Errors
    /// `EIO` when it does not speak 9P2000.L, and what it says itself.
    pub async fn connect(
        channel: Arc<dyn Exchange>,
        options: Options,
    ) -> Result<Arc<dyn FileSystem>, Errno> {
        let device = anonymous_device();
        let (client, handle, attributes) = Client::connect(channel, device).await?;
        let (server, handle) = (Server::Nine(client), Handle::Nine(handle));
        let statistics = server.statistics(&handle).await.unwrap_or([4096, 0, 0, 0, 0]);
        let file_system = RemoteFs::new(server, (handle, &attributes), device, options, statistics);
        Ok(file_system)
    }

    /// Mounts the ext4 of a disk.
    ///
    /// # Errors
    /// `EBUSY` while the disk is mounted, and those of `Volume::mount`.
    pub async fn mount_ext4(
        disk: Arc<BlockDevice>,
        is_read_only: bool,
        options: Options,
    ) -> Result<Arc<dyn FileSystem>, Errno> {
        let device = disk.number();
        let terms = Terms { is_read_only, core: options.core };
        let (volume, root, attributes) = Volume::mount(disk, terms).await?;
        let server = Server::Ext4(volume);
        let statistics = server.statistics(&Handle::Disk).await?;
        let root = (Handle::Ext4(root), &attributes);
        let file_system = RemoteFs::new(server, root, device, options, statistics);
        Ok(file_system)
    }

    /// Files of which something is on its way.
    fn writers(&self) -> Vec<Arc<Node>> {
        let nodes = self.remote.nodes().into_iter();
        let is_written = |node: &Arc<Node>| {
            let content = &node.state.lock().content;
            content.is_writing() || !content.dirty.is_empty()
        };
        nodes.filter(is_written).collect()
    }

    /// The file system of one file that a bare disk is, and that file.
    pub(crate) fn of_disk(
        disk: Arc<BareDisk>,
        device: u64,
        options: Options,
    ) -> (Arc<dyn FileSystem>, Arc<Node>) {
        let attributes = disk.attributes();
        let root = (Handle::Disk, &attributes);
        let file_system = RemoteFs::new(Server::Disk(disk), root, device, options, [0; 5]);
        let node = file_system.root.clone();
        (file_system, node)
    }

    fn new(
        server: Server,
        (handle, attributes): (Handle, &Attributes),
        device: u64,
        options: Options,
        statistics: [u64; 5],
    ) -> Arc<RemoteFs> {
        let shared = Shared {
            nodes: BTreeMap::new(),
            asked: Vec::new(),
            names: VecDeque::new(),
            pages: VecDeque::new(),
            statistics,
            statistics_ns: time::now_ns(),
        };
        let shared = Mutex::new(&rank::REMOTE_FILES, shared);
        let changes = Mutex::new(&rank::TREE_CHANGE, ());
        let (queued, dirty) = (AtomicU64::new(0), AtomicU64::new(0));
        let remote = Arc::new(Remote { server, device, options, changes, shared, queued, dirty });
        let root = remote.node_of(handle, attributes);
        let file_system = Arc::new(RemoteFs { remote, root });
        let known: Arc<dyn FileSystem> = file_system.clone();
        sync_with_all(&known);
        file_system
    }
}

impl Drop for RemoteFs {
    fn drop(&mut self) {
        // Names and parents keep each other.
        for node in self.remote.nodes() {
            let children = core::mem::take(&mut node.state.lock().children);
            drop(children);
        }
    }
}

impl FileSystem for RemoteFs {
    fn type_name(&self) -> &'static str {
        self.remote.server.kind().0
    }

    fn device(&self) -> u64 {
        self.remote.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn statistics(&self) -> FileSystemStatistics {
        let [block_size, blocks, free_blocks, inodes, free_inodes] =
            self.remote.shared.lock().statistics;
        let block_size = u32::try_from(block_size).unwrap_or(4096);
        let magic = self.remote.server.kind().1;
        FileSystemStatistics { magic, block_size, blocks, free_blocks, inodes, free_inodes }
    }

    fn refresh(&self) -> Result<(), Errno> {
        let fetched_ns = self.remote.shared.lock().statistics_ns;
        if self.remote.is_fresh(u64::MAX, fetched_ns) {
            return Ok(());
        }
        let handle = self.root.handle();
        let found = self.remote.ask(Question::Statistics, |client| async move {
            client.statistics(&handle).await.map(Found::Statistics)
        })?;
        if let Found::Statistics(statistics) = found {
            let mut shared = self.remote.shared.lock();
            (shared.statistics, shared.statistics_ns) = (statistics, time::now_ns());
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        let writers = self.writers();
        if writers.is_empty() && !self.remote.server.has_cache() {
            return Ok(());
        }
        let wait = |server: Server| async move {
            arrival(writers).await?;
            server.flush().await?;
            Ok(Found::Nothing)
        };
        self.remote.ask(Question::AllWritten, wait).map(|_| ())
    }

    fn write_back(&self) {
        for node in self.remote.nodes() {
            node.write_back_soon();
        }
    }

    fn cached(&self) -> CacheCounts {
        CacheCounts {
            pages: self.remote.shared.lock().pages.len() as u64,
            dirty: self.remote.dirty.load(Ordering::Relaxed),
            writeback: self.remote.queued.load(Ordering::Relaxed).div_ceil(PAGE),
        }
    }

    fn drop_cached(&self) {
        let mut left = self.remote.shared.lock().pages.len();
        while left > 0 {
            left -= 1;
            let oldest = self.remote.shared.lock().pages.pop_front();
            let Some((node, page)) = oldest else { return };
            if let Some(kept) = node.upgrade()
                && !kept.drop_page(page, false)
            {
                self.remote.shared.lock().pages.push_back((node, page));
            }
        }
    }

    fn close(&self) -> Result<(), Errno> {
        if !matches!(self.remote.server, Server::Ext4(_)) {
            return Ok(());
        }
        let writers = self.writers();
        let wait = |server: Server| async move {
            arrival(writers).await?;
            server.close().await?;
            Ok(Found::Nothing)
        };
        self.remote.ask(Question::Close, wait).map(|_| ())
    }

    fn is_read_only(&self) -> bool {
        self.remote.server.has_lost_journal()
    }

    fn set_read_only(&self, is_read_only: bool) -> Result<(), Errno> {
        let writers = self.writers();
        let wait = |server: Server| async move {
            arrival(writers).await?;
            server.set_read_only(is_read_only).await?;
            Ok(Found::Nothing)
        };
        self.remote.ask(Question::SetReadOnly(is_read_only), wait).map(|_| ())
    }

    fn options(&self) -> String {
        String::from(self.remote.server.kind().2)
    }
}

#[cfg(test)]
mod tests;
