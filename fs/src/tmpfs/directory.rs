//! Entries of a directory: found by name through a hash, listed by a cookie that never changes while
//! the entry exists. Cookies only grow and a listing goes from the newest entry to the oldest, as that
//! of Linux; so a listing that goes on after any change neither repeats nor misses an entry that was
//! there all the while.

use super::node::Node;
use crate::inode::Inode;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use base::heap::tree;
use hashbrown::HashMap;

/// Cookies below this one stand for `.` and `..`.
pub const FIRST_COOKIE: u64 = 3;

/// Takes name, node and cookie of an entry; false when it wants no more.
pub type Emit<'a> = dyn FnMut(&[u8], &Arc<Node>, u64) -> bool + 'a;

struct Entry {
    cookie: u64,
    node: Arc<Node>,
}

/// Entries of one directory. Guarded by the node's lock.
pub struct Entries {
    by_name: HashMap<Arc<[u8]>, Entry>,
    names: BTreeMap<u64, Arc<[u8]>>,
    next_cookie: u64,
    /// The directory has been removed: nothing can be added any more.
    pub is_dead: bool,
    /// The next in the list of directories whose entries are to be freed.
    pub next_dead: Option<Box<Entries>>,
}

impl Entries {
    pub fn new() -> Entries {
        Entries {
            by_name: HashMap::new(),
            names: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            is_dead: false,
            next_dead: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<Node>> {
        self.by_name.get(name).map(|entry| &entry.node)
    }

    /// Adds an entry, or makes an existing one lead to another node, which is returned.
    pub fn put(&mut self, name: &Arc<[u8]>, node: Arc<Node>) -> Option<Arc<Node>> {
        if let Some(entry) = self.by_name.get_mut(&**name) {
            return Some(core::mem::replace(&mut entry.node, node));
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        tree::insert(&mut self.names, cookie, name.clone());
        self.by_name.insert(name.clone(), Entry { cookie, node });
        None
    }

    /// Takes any entry out.
    pub fn pop(&mut self) -> Option<Arc<Node>> {
        let (_, name) = self.names.pop_last()?;
        self.by_name.remove(&name).map(|entry| entry.node)
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<Arc<Node>> {
        let entry = self.by_name.remove(name)?;
        self.names.remove(&entry.cookie);
        Some(entry.node)
    }

    /// Gives the entries older than the one of a cookie until `emit` returns false; all of them for a
    /// cookie below `FIRST_COOKIE`.
    pub fn list(&self, cursor: u64, emit: &mut Emit<'_>) {
        let end = if cursor < FIRST_COOKIE { u64::MAX } else { cursor };
        for (&cookie, name) in self.names.range(..end).rev() {
            let Some(entry) = self.by_name.get(&**name) else { continue };
            if !emit(name, &entry.node, cookie) {
                return;
            }
        }
    }

    /// Sum of the sizes that Linux counts for entries.
    pub fn reported_size(&self) -> u64 {
        (self.len() as u64 + 2) * 20
    }
}

/// Whether a node is a directory.
pub fn is_directory(node: &Node) -> bool {
    node.kind() == crate::metadata::NodeKind::Directory
}
