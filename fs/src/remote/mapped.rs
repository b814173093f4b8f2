//! Pages that programs write to through shared mappings.
//!
//! ```text
//!  fault ─ page_written ─> dirty ── fsync, age, pressure, the last mapping ──> taken out of the set, mappings
//!             ^                                                                  protected, bytes copied ─> queue
//!             └────────────────────── next write: fault again ────────────────────────────┘
//! ```
//!
//! A page is mapped writable only while it is in the set of dirty ones. It leaves the set before its mappings
//! lose the right to write and its bytes are copied, so a write in between brings it back. A fault announces the page
//! before it maps it, which keeps it in the cache, and afterwards, in case it was written back in between.

use super::content::{MOST_QUEUED, PAGE, PART};
use super::{Node, dirty};
use crate::mapped;
use crate::metadata::Timestamp;
use abi::Errno;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::memory::{Frame, PAGE_SIZE};
use base::{task, time};

impl Node {
    /// `Inode::page_written`.
    pub(super) fn note_mapped_write(
        self: &Arc<Node>,
        index: u64,
        frame: &Frame,
    ) -> Result<bool, Errno> {
        {
            let state = self.state.lock();
            let is_known = state.content.pages.get(&index).is_some_and(|page| page.is_same(frame));
            if is_known && state.content.dirty.contains(&index) {
                return Ok(true);
            }
        }
        if self.remote.server.has_lost_journal() {
            return Err(Errno::EROFS);
        }
        // What the write-back will need.
        self.open_handle(true)?;
        if self.find_room(Some(index * PAGE), PAGE)? == 0 {
            return Err(Errno::ENOSPC);
        }
        if dirty::is_much() {
            self.write_back();
        }
        if dirty::is_too_much() {
            self.remote.wait_for_room()?;
        }
        let mut state = self.state.lock();
        if index >= state.metadata.size.div_ceil(PAGE) {
            return Err(Errno::EFAULT);
        }
        let content = &mut state.content;
        if !content.pages.get(&index).is_some_and(|page| page.is_same(frame)) {
            return Ok(false);
        }
        if content.dirty.is_empty() {
            content.dirty_since_ns = time::now_ns();
        }
        if tree::insert_in_set(&mut content.dirty, index) {
            self.remote.add_dirty();
        }
        let is_first = !core::mem::replace(&mut content.is_aging, true);
        let now = Timestamp::now();
        (state.metadata.modified, state.metadata.changed) = (now, now);
        drop(state);
        if is_first {
            self.age();
        }
        Ok(true)
    }

    /// Has the pages written back when they are old.
    fn age(self: &Arc<Node>) {
        let node = Arc::downgrade(self);
        let aging = async move {
            loop {
                let (interval_ns, age_ns) = dirty::times_ns();
                time::sleep_for(interval_ns).await;
                let Some(node) = node.upgrade() else { return };
                let since_ns = node.state.lock().content.dirty_since_ns;
                let old_ns = time::now_ns().saturating_sub(since_ns);
                if age_ns.is_some_and(|age_ns| old_ns >= age_ns) {
                    node.write_back();
                }
                let mut state = node.state.lock();
                if state.content.dirty.is_empty() {
                    state.content.is_aging = false;
                    return;
                }
            }
        };
        if task::spawn(self.remote.options.core, aging).is_err() {
            // The next page tries again; what asks for them, or the last mapping, does not need it.
            self.state.lock().content.is_aging = false;
        }
    }

    /// Has the pages written back by somebody else.
    pub(super) fn write_back_soon(self: &Arc<Node>) {
        if self.state.lock().content.dirty.is_empty() {
            return;
        }
        let node = self.clone();
        let core = self.remote.options.core;
        // Without memory for a task, age brings it about.
        let _ = task::spawn(core, async move { node.write_back() });
    }

    /// Puts the pages that were written to through mappings into the queue of what is sent.
    pub(super) fn write_back(self: &Arc<Node>) {
        let (taken, writer) = {
            let mut state = self.state.lock();
            let Some(writer) = state.content.writer.clone() else { return };
            if state.content.dirty.is_empty() || state.content.queued > 4 * MOST_QUEUED {
                return;
            }
            let mut pages = Vec::new();
            if pages.try_reserve_exact(state.content.dirty.len()).is_err() {
                return;
            }
            pages.extend(state.content.dirty.iter().copied());
            state.content.dirty = BTreeSet::new();
            state.content.cleaning += 1;
            (pages, writer)
        };
        mapped::protect(self.id(), &taken);
        let mut state = self.state.lock();
        let (size, when) = (state.metadata.size, state.metadata.modified);
        let mut cleaned = 0;
        let mut part: (u64, Vec<u8>) = (0, Vec::new());
        for &index in &taken {
            let content = &mut state.content;
            let Some(frame) = content.pages.get(&index).cloned() else {
                cleaned += 1;
                continue;
            };
            let start = index * PAGE;
            let length = size.saturating_sub(start).min(PAGE) as usize;
            let (at, bytes) = &mut part;
            if *at + bytes.len() as u64 != start || bytes.len() + PAGE_SIZE > PART {
                let full = core::mem::replace(&mut part, (start, Vec::new()));
                content.push(full, when, &self.remote);
            }
            let bytes = &mut part.1;
            let from = bytes.len();
            if bytes.try_reserve(length).is_err() {
                break;
            }
            bytes.resize(from + length, 0);
            frame.read(0, bytes.get_mut(from..).unwrap_or_default());
            cleaned += 1;
        }
        state.content.push(part, when, &self.remote);
        // What there was no memory for stays dirty. It is protected, which only costs a fault.
        let mut again = 0;
        for &index in taken.get(cleaned..).unwrap_or_default() {
            again += usize::from(tree::insert_in_set(&mut state.content.dirty, index));
        }
        state.content.cleaning -= 1;
        let is_idle = state.content.queue.is_empty();
        let was_sending = is_idle || core::mem::replace(&mut state.content.is_sending, true);
        drop(state);
        self.remote.count_dirty(taken.len() - again);
        if !was_sending {
            self.begin_sending(writer);
        }
    }
}
