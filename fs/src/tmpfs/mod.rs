//! tmpfs: files in memory. The root file system, `/dev`, `/dev/pts` and memory files are of this kind.
//!
//! ```text
//! TmpFs ── root ──> Node (directory) ── entries ──> Node …      each Node ──> Shared (limits, counters)
//! ```
//!
//! Locks: each node has one (`Node::state`), held for short steps and never two at a time. Changes to
//! the shape of the tree (create, link, remove, rename) hold `Shared::changes` as well, one at a time
//! per file system, so that a rename may look at several directories while nothing moves.
//!
//! Trees are freed without recursion, and large files a piece at a time (`grave`).
//!
//! Left out: quotas, swapping.

mod directory;
mod extended;
mod grave;
mod node;
mod pages;

pub use grave::take_pages as bury;
pub use node::Node;

use crate::inode::{
    FileSystem, FileSystemStatistics, Inode, NewContent, NewNode, anonymous_device,
};
use crate::metadata::InodeId;
use abi::Errno;
use abi::fs::{Seals, TMPFS_MAGIC};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use base::memory::{PAGE_SIZE, frame_counts};
use base::sync::{Mutex, rank};
use core::sync::atomic::{AtomicU64, Ordering};

/// Pages of content in all file systems of this kind.
static PAGES: AtomicU64 = AtomicU64::new(0);

/// Pages of content that all file systems of this kind hold.
pub fn page_count() -> u64 {
    PAGES.load(Ordering::Relaxed)
}

/// What all nodes of one tmpfs share.
pub(crate) struct Shared {
    device: u64,
    next_number: AtomicU64,
    used_pages: AtomicU64,
    page_limit: AtomicU64,
    used_nodes: AtomicU64,
    node_limit: AtomicU64,
    /// Bytes of extended attributes.
    attribute_bytes: AtomicU64,
    /// Held while the shape of the tree changes.
    changes: Mutex<()>,
}

impl Shared {
    fn new_id(&self) -> InodeId {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        InodeId { device: self.device, number }
    }

    /// Counts pages in before they are allocated. `ENOSPC` at the limit.
    fn reserve_pages(&self, count: u64) -> Result<(), Errno> {
        reserve(&self.used_pages, &self.page_limit, count)?;
        PAGES.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Pages that may still be counted in.
    fn free_pages(&self) -> u64 {
        let limit = self.page_limit.load(Ordering::Relaxed);
        limit.saturating_sub(self.used_pages.load(Ordering::Relaxed))
    }

    fn release_pages(&self, count: u64) {
        self.used_pages.fetch_sub(count, Ordering::Relaxed);
        PAGES.fetch_sub(count, Ordering::Relaxed);
    }

    fn reserve_node(&self) -> Result<(), Errno> {
        reserve(&self.used_nodes, &self.node_limit, 1)
    }

    fn release_node(&self) {
        self.used_nodes.fetch_sub(1, Ordering::Relaxed);
    }
}

fn reserve(used: &AtomicU64, limit: &AtomicU64, count: u64) -> Result<(), Errno> {
    let before = used.fetch_add(count, Ordering::Relaxed);
    if before.saturating_add(count) > limit.load(Ordering::Relaxed) {
        used.fetch_sub(count, Ordering::Relaxed);
        return Err(Errno::ENOSPC);
    }
    Ok(())
}

/// Options of a tmpfs mount.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most pages of content; `None`: half of the memory.
    pub pages: Option<u64>,
    /// Most inodes; `None`: as many as half of the memory has pages.
    pub nodes: Option<u64>,
    /// Mode of the root directory.
    pub mode: u32,
    /// Owner of the root directory.
    pub user: u32,
    /// Group of the root directory.
    pub group: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { pages: None, nodes: None, mode: 0o1777, user: 0, group: 0 }
    }
}

impl Options {
    /// Names of the options that have a value.
    pub const NAMES: [&str; 8] =
        ["size", "nr_blocks", "nr_inodes", "mode", "uid", "gid", "huge", "mpol"];

    /// As `with`, over the defaults.
    pub fn parse(text: &str) -> Result<Options, Errno> {
        Options::default().with(text)
    }

    /// Reads the data string of `mount`: `size=`, `nr_blocks=`, `nr_inodes=`, `mode=`, `uid=`,
    /// `gid=`. `EINVAL` for anything else, and for huge pages.
    pub fn with(self, text: &str) -> Result<Options, Errno> {
        let mut options = self;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "size" if value.ends_with('%') => {
                    let percent = parse_size(value.strip_suffix('%').unwrap_or(value))?;
                    let total = frame_counts().total as u64;
                    options.pages = Some(total.saturating_mul(percent) / 100);
                }
                "size" => {
                    options.pages = Some(parse_size(value)?.div_ceil(PAGE_SIZE as u64));
                }
                "nr_blocks" => options.pages = Some(parse_size(value)?),
                "nr_inodes" => options.nodes = Some(parse_size(value)?),
                "mode" => {
                    let mode = u32::from_str_radix(value, 8).map_err(|_| Errno::EINVAL)?;
                    options.mode = mode & 0o7777;
                }
                "uid" => options.user = parse_id(value)?,
                "gid" => options.group = parse_id(value)?,
                "huge" if value == "never" => {}
                "mpol" if !value.is_empty() => {}
                "inode64" | "inode32" | "noswap" if !part.contains('=') => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        // Linux takes 0 for "no limit".
        options.pages = options.pages.map(|pages| if pages == 0 { u64::MAX / 2 } else { pages });
        options.nodes = options.nodes.map(|nodes| if nodes == 0 { u64::MAX / 2 } else { nodes });
        Ok(options)
    }
}

/// A user or group.
fn parse_id(text: &str) -> Result<u32, Errno> {
    let id: u32 = text.parse().map_err(|_| Errno::EINVAL)?;
    if id == u32::MAX { Err(Errno::EINVAL) } else { Ok(id) }
}

/// A number with an optional suffix k, m, g, t, p or e.
fn parse_size(text: &str) -> Result<u64, Errno> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (text.get(..text.len() - 1), 10),
        Some(b'm') => (text.get(..text.len() - 1), 20),
        Some(b'g') => (text.get(..text.len() - 1), 30),
        Some(b't') => (text.get(..text.len() - 1), 40),
        Some(b'p') => (text.get(..text.len() - 1), 50),
        Some(b'e') => (text.get(..text.len() - 1), 60),
        _ => (Some(text), 0),
    };
    let number: u64 = digits.unwrap_or("").parse().map_err(|_| Errno::EINVAL)?;
    number.checked_mul(1 << shift).ok_or(Errno::EINVAL)
}

/// A tmpfs.
pub struct TmpFs {
    type_name: &'static str,
    magic: i64,
    shared: Arc<Shared>,
    root: Arc<Node>,
}

impl TmpFs {
    /// An empty tmpfs.
    pub fn new(options: &Options) -> Result<Arc<TmpFs>, Errno> {
        TmpFs::of_type("tmpfs", TMPFS_MAGIC, options)
    }

    /// An empty tmpfs that calls itself something else (`devtmpfs`, `devpts`).
    pub fn of_type(
        type_name: &'static str,
        magic: i64,
        options: &Options,
    ) -> Result<Arc<TmpFs>, Errno> {
        let default_limit = (frame_counts().total as u64 / 2).max(1);
        let shared = Arc::new(Shared {
            device: anonymous_device(),
            next_number: AtomicU64::new(1),
            used_pages: AtomicU64::new(0),
            page_limit: AtomicU64::new(options.pages.unwrap_or(default_limit)),
            used_nodes: AtomicU64::new(0),
            node_limit: AtomicU64::new(options.nodes.unwrap_or(default_limit)),
            attribute_bytes: AtomicU64::new(0),
            changes: Mutex::new(&rank::TREE_CHANGE, ()),
        });
        let root = Node::new(
            &shared,
            &NewNode {
                content: NewContent::Directory,
                mode: options.mode,
                user: options.user,
                group: options.group,
            },
        )?;
        Ok(Arc::new(TmpFs { type_name, magic, shared, root }))
    }

    /// The root directory as what it is.
    pub fn root_node(&self) -> &Arc<Node> {
        &self.root
    }

    /// A nameless file that takes seals (`memfd_create`), shown under `label`.
    pub fn memory_file(
        &self,
        label: String,
        seals: Seals,
        mode: u32,
        user: u32,
        group: u32,
    ) -> Result<Arc<dyn Inode>, Errno> {
        let new = NewNode { content: NewContent::Regular, mode, user, group };
        let node = Node::labelled(&self.shared, &new, label, seals)?;
        Ok(node)
    }
}

impl FileSystem for TmpFs {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn device(&self) -> u64 {
        self.shared.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn statistics(&self) -> FileSystemStatistics {
        let shared = &self.shared;
        let blocks = shared.page_limit.load(Ordering::Relaxed);
        let inodes = shared.node_limit.load(Ordering::Relaxed);
        FileSystemStatistics {
            magic: self.magic,
            block_size: PAGE_SIZE as u32,
            blocks,
            free_blocks: blocks.saturating_sub(shared.used_pages.load(Ordering::Relaxed)),
            inodes,
            free_inodes: inodes.saturating_sub(shared.used_nodes.load(Ordering::Relaxed)),
        }
    }

    fn options(&self) -> String {
        let kilobytes =
            self.shared.page_limit.load(Ordering::Relaxed).saturating_mul(PAGE_SIZE as u64 / 1024);
        let nodes = self.shared.node_limit.load(Ordering::Relaxed);
        format!(",size={kilobytes}k,nr_inodes={nodes}")
    }

    fn remount(&self, text: &str) -> Result<(), Errno> {
        let options = Options::parse(text)?;
        if let Some(pages) = options.pages {
            if pages < self.shared.used_pages.load(Ordering::Relaxed) {
                return Err(Errno::EINVAL);
            }
            self.shared.page_limit.store(pages, Ordering::Relaxed);
        }
        if let Some(nodes) = options.nodes {
            if nodes < self.shared.used_nodes.load(Ordering::Relaxed) {
                return Err(Errno::EINVAL);
            }
            self.shared.node_limit.store(nodes, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
