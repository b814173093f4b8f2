//! Inodes of a share: what is cached of each, and how it is brought up to date.

use super::content::Content;
use super::server::{Attributes, Handle};
use super::{Found, Question, Remote};
use crate::listing::Listing;
use crate::mapped;
use crate::metadata::{InodeId, Metadata, NodeKind};
use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::time;
use base::wait::WaitQueue;
use core::sync::atomic::AtomicI32;

/// A name that was looked up.
pub struct Child {
    /// What it led to: a file, or an error such as `ENOENT`.
    pub result: Result<Arc<Node>, Errno>,
    /// When.
    pub fetched_ns: u64,
}

/// What is cached of an inode. Fields of other kinds stay empty.
pub struct State {
    pub handle: Arc<Handle>,
    pub metadata: Metadata,
    pub fetched_ns: u64,
    /// Where it was found last.
    pub parent: Option<Arc<Node>>,
    pub name: Arc<[u8]>,
    pub is_removed: bool,
    /// Directory: names that were looked up.
    pub children: BTreeMap<Arc<[u8]>, Child>,
    pub listing: Listing,
    /// Symbolic link: its text.
    pub target: Option<Vec<u8>>,
    /// Regular file.
    pub content: Content,
}

/// An inode of a share.
pub struct Node {
    pub(super) remote: Arc<Remote>,
    pub(super) itself: Weak<Node>,
    pub(super) number: u64,
    kind: NodeKind,
    pub(super) state: Mutex<State>,
    pub(super) writers: AtomicI32,
    /// Mappings for shared writing.
    pub(super) shared_mappings: AtomicI32,
    /// Woken when what was written has arrived.
    pub(super) arrived: WaitQueue,
}

impl Node {
    pub(super) fn new(remote: &Arc<Remote>, handle: Handle, attributes: &Attributes) -> Arc<Node> {
        let state = State {
            handle: Arc::new(handle),
            metadata: attributes.metadata,
            fetched_ns: time::now_ns(),
            parent: None,
            name: Arc::from([]),
            is_removed: false,
            children: BTreeMap::new(),
            listing: Listing::default(),
            target: None,
            content: Content::new(&attributes.metadata),
        };
        Arc::new_cyclic(|itself| Node {
            remote: remote.clone(),
            itself: itself.clone(),
            number: attributes.number,
            kind: attributes.metadata.kind,
            state: Mutex::new(&rank::INODE, state),
            writers: AtomicI32::new(0),
            shared_mappings: AtomicI32::new(0),
            arrived: WaitQueue::new(),
        })
    }

    /// What it is.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    pub(super) fn id(&self) -> InodeId {
        InodeId { device: self.remote.device, number: self.number }
    }

    /// The server's number for it.
    pub(super) fn handle(&self) -> Arc<Handle> {
        self.state.lock().handle.clone()
    }

    /// What it is like now is known from elsewhere: what is cached goes if that differs.
    pub(crate) fn told(&self, attributes: &Attributes) {
        self.found(None, attributes);
    }

    /// The server has told of it again, perhaps by a newer handle.
    pub(super) fn found(&self, handle: Option<Handle>, attributes: &Attributes) {
        let mut state = self.state.lock();
        let old = handle.map(|handle| core::mem::replace(&mut state.handle, Arc::new(handle)));
        let before = state.metadata;
        state.fetched_ns = time::now_ns();
        if state.content.is_writing() {
            // Not everything has arrived: size and times are those that we know.
            let (size, modified) = (before.size, before.modified);
            state.metadata = Metadata { size, modified, ..attributes.metadata };
            return;
        }
        if before.changed != attributes.metadata.changed {
            state.target = None;
        }
        state.metadata = attributes.metadata;
        let version = (attributes.metadata.size, attributes.metadata.modified);
        // On a disk nobody else changes anything.
        let has_changed = state.content.version != version && !self.remote.server.is_ours_alone();
        state.content.version = version;
        let dropped = if has_changed { state.content.take_pages() } else { BTreeMap::new() };
        if has_changed {
            self.spoil(&mut state.content, 0..u64::MAX);
        }
        let was_cut = attributes.metadata.size < before.size;
        drop(state);
        drop(old);
        let has_dropped = !dropped.is_empty();
        mapped::pages_replaced(self.id(), dropped);
        if was_cut && has_dropped {
            let pages = base::memory::PAGE_SIZE as u64;
            mapped::pages_gone(self.id(), attributes.metadata.size.div_ceil(pages)..u64::MAX);
        }
    }

    /// Notes where it was found.
    pub(super) fn placed(&self, parent: &Arc<Node>, name: &Arc<[u8]>) {
        let mut state = self.state.lock();
        let old = state.parent.replace(parent.clone());
        (state.name, state.is_removed) = (name.clone(), false);
        drop(state);
        drop(old);
    }

    /// Notes what a name in this directory leads to.
    pub(super) fn note_child(&self, name: &Arc<[u8]>, result: Result<Arc<Node>, Errno>) {
        let child = Child { result, fetched_ns: time::now_ns() };
        let mut state = self.state.lock();
        let old = tree::insert(&mut state.children, name.clone(), child);
        drop(state);
        if old.is_none() {
            self.remote.note_name(&self.itself, name);
        }
    }

    /// Forgets what a name leads to, for want of room.
    pub(super) fn forget(&self, name: &[u8]) {
        let old = self.state.lock().children.remove(name);
        drop(old);
    }

    /// The inode of a name, from the cache or from the server.
    pub(super) fn look_up(self: &Arc<Node>, name: &[u8]) -> Result<Arc<Node>, Errno> {
        let cached = self
            .state
            .lock()
            .children
            .get(name)
            .map(|child| (child.result.clone(), child.fetched_ns));
        if let Some((result, fetched_ns)) = cached
            && self.remote.is_fresh(self.number, fetched_ns)
        {
            return result;
        }
        let name: Arc<[u8]> = Arc::from(name);
        let question = Question::Lookup { directory: self.number, name: name.clone() };
        let (handle, wanted) = (self.handle(), name.clone());
        let found = self.remote.ask(question, |client| async move {
            let (handle, attributes) = client.walk(&handle, &wanted).await?;
            Ok(Found::File(handle, attributes))
        });
        match found {
            Ok(Found::File(handle, attributes)) => {
                let node = self.remote.node_of(handle, &attributes);
                self.remote.place(&node, self, &name)?;
                self.note_child(&name, Ok(node.clone()));
                Ok(node)
            }
            Ok(_) => Err(Errno::EIO),
            Err(Errno::EIOCBQUEUED) => Err(Errno::EIOCBQUEUED),
            Err(error) => {
                self.note_child(&name, Err(error));
                Err(error)
            }
        }
    }

    /// Brings the attributes up to date.
    pub(super) fn bring_up_to_date(&self) -> Result<(), Errno> {
        let (fetched_ns, is_removed) = {
            let state = self.state.lock();
            (state.fetched_ns, state.is_removed)
        };
        // The server finds files by their paths: one without a path is as it was.
        if is_removed || self.remote.is_fresh(self.number, fetched_ns) {
            return Ok(());
        }
        let handle = self.handle();
        let found =
            self.remote.ask(Question::Attributes { node: self.number }, |client| async move {
                client.attributes(&handle).await.map(Found::Attributes)
            });
        match found {
            Ok(Found::Attributes(attributes)) if attributes.number == self.number => {
                self.found(None, &attributes);
                Ok(())
            }
            Err(Errno::EIOCBQUEUED) => Err(Errno::EIOCBQUEUED),
            // The path leads to another file by now, or to none: this one is as it was.
            Ok(_) | Err(Errno::ENOENT | Errno::ESTALE) => {
                self.state.lock().fetched_ns = time::now_ns();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut shared = self.remote.shared.lock();
        // A newer node may have the number.
        if shared.nodes.get(&self.number).is_some_and(|node| node.strong_count() == 0) {
            shared.nodes.remove(&self.number);
        }
        drop(shared);
        // What nobody has written, nobody will.
        let content = &mut self.state.get_mut().content;
        let (dirty, queued) = (content.dirty.len(), content.queued as u64);
        if dirty > 0 || queued > 0 {
            self.remote.count_dirty(dirty);
            self.remote.remove_queued(queued);
        }
        // A long path is let go of without recursion.
        let mut above = self.state.get_mut().parent.take();
        while let Some(mut parent) = above.and_then(Arc::into_inner) {
            above = parent.state.get_mut().parent.take();
        }
    }
}
