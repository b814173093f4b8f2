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

use super::content::{Content, MOST_QUEUED, PAGE, PART};
use super::{Node, Remote, dirty};
use crate::mapped;
use crate::metadata::{Metadata, Timestamp};
use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::memory::{Frame, PAGE_SIZE};
use base::{task, time};

/// Pages that are written back in one turn.
const PAGES_AT_ONCE: usize = 256;

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
            self.write_back_soon();
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
                    // What there is no memory for has its turn next time.
                    let _ = node.write_back().await;
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
        {
            let content = &mut self.state.lock().content;
            if content.dirty.is_empty() || core::mem::replace(&mut content.is_cleaned_soon, true) {
                return;
            }
        }
        let node = self.clone();
        let writing = async move {
            // What there is no memory for grows old.
            let _ = node.write_back().await;
            node.state.lock().content.is_cleaned_soon = false;
        };
        if task::spawn(self.remote.options.core, writing).is_err() {
            // Age brings it about, or the next page.
            self.state.lock().content.is_cleaned_soon = false;
        }
    }

    /// Puts the pages that were written to through mappings into the queue of what is sent, in turns. Each page is
    /// taken once: what is written to again meanwhile may stay.
    ///
    /// # Errors
    /// `ENOMEM`: some pages are still dirty.
    pub(super) async fn write_back(self: &Arc<Node>) -> Result<(), Errno> {
        let mut from = 0;
        while let Some(last) = self.write_back_part(from).await? {
            from = last + 1;
            task::yield_now().await;
        }
        Ok(())
    }

    /// One turn of `write_back`, of pages from `from` on; gives the last one, `None` where there was none.
    async fn write_back_part(self: &Arc<Node>, from: u64) -> Result<Option<u64>, Errno> {
        while self.state.lock().content.queued > MOST_QUEUED {
            self.written().await;
        }
        let (taken, writer) = {
            let content = &mut self.state.lock().content;
            let Some(writer) = content.writer.clone() else { return Ok(None) };
            let mut taken = Vec::new();
            taken.try_reserve_exact(PAGES_AT_ONCE).map_err(|_| Errno::ENOMEM)?;
            taken.extend(content.dirty.range(from..).take(PAGES_AT_ONCE).copied());
            if taken.is_empty() {
                return Ok(None);
            }
            for index in &taken {
                content.dirty.remove(index);
            }
            content.cleaning += 1;
            (Arc::new(taken), writer)
        };
        mapped::protect(self.id(), &taken).await;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let content = &mut state.content;
        let cleaned = content.push_pages(&taken, &state.metadata, &self.remote);
        // What there was no memory for stays dirty. It is protected, which only costs a fault.
        let rest = taken.get(cleaned..).unwrap_or_default();
        let again =
            rest.iter().filter(|&&index| tree::insert_in_set(&mut content.dirty, index)).count();
        content.cleaning -= 1;
        let is_idle = content.queue.is_empty();
        let was_sending = is_idle || core::mem::replace(&mut content.is_sending, true);
        drop(guard);
        self.remote.count_dirty(taken.len() - again);
        if !was_sending {
            self.begin_sending(writer);
        } else if is_idle {
            self.arrived.wake_all();
        }
        if rest.is_empty() { Ok(taken.last().copied()) } else { Err(Errno::ENOMEM) }
    }
}

impl Content {
    /// Puts pages, in ascending order, into the queue, as far as the file reaches. Gives how many there was memory
    /// for.
    fn push_pages(&mut self, pages: &[u64], metadata: &Metadata, remote: &Remote) -> usize {
        let when = metadata.modified;
        let mut part: (u64, Vec<u8>) = (0, Vec::new());
        let mut done = 0;
        for &index in pages {
            // What is gone from the cache was cut off.
            if let Some(frame) = self.pages.get(&index).cloned() {
                let start = index * PAGE;
                let length = metadata.size.saturating_sub(start).min(PAGE) as usize;
                if part.0 + part.1.len() as u64 != start || part.1.len() + PAGE_SIZE > PART {
                    let full = core::mem::replace(&mut part, (start, Vec::new()));
                    self.push(full, when, remote);
                }
                let bytes = &mut part.1;
                let from = bytes.len();
                if bytes.try_reserve(length).is_err() {
                    break;
                }
                bytes.resize(from + length, 0);
                frame.read(0, bytes.get_mut(from..).unwrap_or_default());
            }
            done += 1;
        }
        self.push(part, when, remote);
        done
    }
}
