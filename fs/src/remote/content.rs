//! Contents of regular files of a share: what is cached of them, and reads.
//!
//! A read is answered from cached pages or not at all: what is missing of the whole range is asked for first,
//! a chunk of 16 pages at a time, with the following ones when reads come in order. Writes stand in `writing`.

use super::server::Handle;
use super::{Found, Node, Question, Remote};
use crate::file::next_id;
use crate::inode::LostWrite;
use crate::mapped;
use crate::metadata::{Metadata, Timestamp};
use abi::Errno;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::io::Sink;
use base::memory::{Frame, PAGE_SIZE};
use core::ops::Range;

pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// Pages that are asked for at a time.
pub(super) const CHUNK_PAGES: u64 = 16;
/// Chunks that are asked for ahead when reads come in order, at first and at most: twice as many each time.
const FIRST_AHEAD: u64 = 2;
const MOST_AHEAD: u64 = 16;
/// Most bytes of one read that are brought together before any are given.
const MOST_AT_ONCE: u64 = 1 << 20;
/// Bytes of one message to the server.
pub(super) const PART: usize = 64 << 10;
/// Most bytes that wait to be sent for one file.
pub(super) const MOST_QUEUED: usize = 4 << 20;

/// How far what was written has to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// What is in the queue has arrived.
    Queue,
    /// So has what was written through mappings.
    Mappings,
    /// All of it is durable.
    Durable,
}

/// What is cached of a file's content, and what is on its way.
#[derive(Default)]
pub struct Content {
    pub(super) pages: BTreeMap<u64, Frame>,
    /// Pages that may have been written to through mappings since they were written back.
    pub(super) dirty: BTreeSet<u64>,
    /// How many are just writing pages back that are no longer among the dirty ones.
    pub(super) cleaning: usize,
    /// A task that writes pages back has been started and has not ended.
    pub(super) is_cleaned_soon: bool,
    /// A task waits for dirty pages to be old.
    pub(super) is_aging: bool,
    /// When the first of the dirty pages became dirty, on the clock of `time::now_ns`.
    pub(super) dirty_since_ns: u64,
    /// Size and time of change of the file that the pages belong to.
    pub version: (u64, Timestamp),
    /// Where the last read ended, as a number of a chunk.
    next_chunk: u64,
    pub reader: Option<Arc<Handle>>,
    pub writer: Option<Arc<Handle>>,
    /// Offsets, bytes, and when they were given.
    pub(super) queue: VecDeque<(u64, Vec<u8>, Timestamp)>,
    pub(super) queued: usize,
    /// Counts changes of the content: what was read before one must not become a page after it.
    pub(super) epoch: u64,
    /// A task sends the queue.
    pub(super) is_sending: bool,
    /// The error of a write, until somebody is told.
    pub(super) error: Option<Errno>,
    /// The last error of a write.
    pub(super) lost: Option<LostWrite>,
    /// The journal of the volume was lost, and `lost` tells it.
    tells_journal: bool,
    /// Chunks that the next read in order has asked for ahead.
    ahead: u64,
}

impl Content {
    pub fn new(metadata: &Metadata) -> Content {
        Content { version: (metadata.size, metadata.modified), ..Content::default() }
    }

    /// Whether something was written that has not arrived.
    pub fn is_writing(&self) -> bool {
        self.is_sending || !self.queue.is_empty() || self.cleaning > 0
    }

    /// A write was lost.
    pub(super) fn has_lost(&mut self, error: Errno) {
        let count = self.lost.map_or(0, |lost| lost.count) + 1;
        self.lost = Some(LostWrite { count, before: next_id(), error });
        self.error = Some(error);
    }

    /// A write was lost, and perhaps the journal of the volume.
    pub(super) fn has_lost_write(&mut self, error: Errno, is_journal_lost: bool) {
        self.tells_journal |= is_journal_lost;
        // `EROFS` is for those who come later.
        self.has_lost(if error == Errno::EROFS { Errno::EIO } else { error });
    }

    /// What was written cannot be made durable; a lost journal is told once and no more.
    pub(super) fn has_lost_sync(&mut self, error: Errno, is_journal_lost: bool) {
        if !(is_journal_lost && self.tells_journal) {
            self.has_lost_write(error, is_journal_lost);
        }
    }

    /// Puts bytes at an offset into the queue.
    pub(super) fn push(
        &mut self,
        (offset, bytes): (u64, Vec<u8>),
        when: Timestamp,
        remote: &Remote,
    ) {
        if bytes.is_empty() {
            return;
        }
        self.queued += bytes.len();
        remote.add_queued(bytes.len() as u64);
        self.queue.push_back((offset, bytes, when));
    }

    /// Takes the pages of a range out, and how many of them were dirty.
    pub fn take_range(&mut self, range: Range<u64>) -> (BTreeMap<u64, Frame>, usize) {
        let mut taken = BTreeMap::new();
        while let Some((&index, _)) = self.pages.range(range.clone()).next() {
            if let Some(frame) = self.pages.remove(&index) {
                tree::insert(&mut taken, index, frame);
            }
        }
        let before = self.dirty.len();
        self.dirty.retain(|index| !range.contains(index));
        (taken, before - self.dirty.len())
    }

    /// Takes all pages out but those that have what the server has not.
    pub fn take_pages(&mut self) -> BTreeMap<u64, Frame> {
        if self.cleaning > 0 {
            return BTreeMap::new();
        }
        if self.dirty.is_empty() {
            return core::mem::take(&mut self.pages);
        }
        let clean: Vec<u64> =
            self.pages.keys().copied().filter(|index| !self.dirty.contains(index)).collect();
        let mut taken = BTreeMap::new();
        for index in clean {
            if let Some(frame) = self.pages.remove(&index) {
                tree::insert(&mut taken, index, frame);
            }
        }
        taken
    }

    /// The file has another size: pages past the end go, and the rest of the last one is zero. Gives the
    /// pages that went, and how many of them were dirty.
    pub fn cut(&mut self, size: u64) -> (BTreeMap<u64, Frame>, usize) {
        let before = self.dirty.len();
        self.dirty.retain(|index| *index < size.div_ceil(PAGE));
        let cleaned = before - self.dirty.len();
        let gone = tree::split_off(&mut self.pages, &size.div_ceil(PAGE));
        let within = (size % PAGE) as usize;
        if within > 0
            && let Some(frame) = self.pages.get(&(size / PAGE))
        {
            frame.zero(within, PAGE_SIZE - within);
        }
        (gone, cleaned)
    }
}

impl Node {
    /// Whether something was written that has not arrived.
    pub(super) fn is_writing(&self) -> bool {
        self.state.lock().content.is_writing()
    }

    /// Waits until what was written has arrived.
    pub(super) async fn written(&self) {
        self.arrived.wait_until(|| (!self.is_writing()).then_some(())).await;
    }

    /// Drops a page from the cache. Gives it back where it has to stay: it is dirty, or, unless `even_mapped`,
    /// somebody maps it.
    pub(super) fn drop_page(&self, page: u64, even_mapped: bool) -> bool {
        let mut state = self.state.lock();
        let content = &mut state.content;
        let Some(frame) = content.pages.get(&page) else { return true };
        let is_kept = content.cleaning > 0 || content.dirty.contains(&page);
        if is_kept || (frame.is_shared() && !even_mapped) {
            return false;
        }
        let mut old = BTreeMap::new();
        if let Some(frame) = content.pages.remove(&page) {
            tree::insert(&mut old, page, frame);
        }
        drop(state);
        mapped::pages_replaced(self.id(), old);
        true
    }

    /// Drops pages of a range from the cache, but those that are dirty or mapped.
    pub(super) fn drop_pages(&self, range: Range<u64>) {
        let mut from = range.start;
        loop {
            let next =
                self.state.lock().content.pages.range(from..range.end).next().map(|(at, _)| *at);
            let Some(page) = next else { return };
            self.drop_page(page, false);
            from = page + 1;
        }
    }

    /// A handle that is open for reading, and for writing if `writes`.
    pub(super) fn open_handle(&self, writes: bool) -> Result<Arc<Handle>, Errno> {
        let handle = {
            let state = self.state.lock();
            let content = &state.content;
            let known = if writes { &content.writer } else { &content.reader };
            if let Some(handle) = known {
                return Ok(handle.clone());
            }
            state.handle.clone()
        };
        let handle = match self.remote.server.open_now(&handle) {
            Some(handle) => handle,
            None => {
                let question = Question::Open { node: self.number, writes };
                let found = self.remote.ask(question, |client| async move {
                    client.open(&handle, writes).await.map(Found::Open)
                })?;
                let Found::Open(handle) = found else { return Err(Errno::EIO) };
                handle
            }
        };
        let handle = Arc::new(handle);
        let content = &mut self.state.lock().content;
        let place = if writes { &mut content.writer } else { &mut content.reader };
        Ok(place.get_or_insert(handle).clone())
    }

    /// Waits until what was written has arrived, as far as `end` says.
    pub(super) fn settle(&self, end: Arrival) -> Result<(), Errno> {
        let (is_writing, writer) = {
            let content = &self.state.lock().content;
            let is_writing =
                content.is_writing() || (end != Arrival::Queue && !content.dirty.is_empty());
            (is_writing, content.writer.clone())
        };
        let is_durable = end == Arrival::Durable;
        let writer = match writer {
            Some(writer) => writer,
            // Its names and attributes may have changed, which its volume keeps.
            None if is_durable && self.remote.server.is_ours_alone() => self.handle(),
            None => return Ok(()),
        };
        if !is_writing && !is_durable {
            return Ok(());
        }
        let question = Question::Written { node: self.number, end };
        let node = self.itself.upgrade().ok_or(Errno::EIO)?;
        let wait = |client: super::Server| async move {
            if end != Arrival::Queue {
                node.write_back().await?;
            }
            node.written().await;
            if is_durable {
                client.sync(&writer).await?;
            }
            Ok(Found::Nothing)
        };
        self.remote.ask(question, wait).map(|_| ())
    }

    /// The error of a write that nobody was told of.
    pub(super) fn take_error(&self) -> Result<(), Errno> {
        self.state.lock().content.error.take().map_or(Ok(()), Err)
    }

    /// Brings the pages `first..end` into the cache.
    pub(super) fn bring_in(&self, first: u64, end: u64) -> Result<(), Errno> {
        let (missing, is_writing, in_order, size) = {
            let state = self.state.lock();
            let content = &state.content;
            let mut missing = Vec::new();
            let mut page = first;
            while page < end {
                if content.pages.contains_key(&page) {
                    page += 1;
                    continue;
                }
                let chunk = page / CHUNK_PAGES;
                missing.push(chunk);
                page = (chunk + 1) * CHUNK_PAGES;
            }
            let in_order = missing.first() == Some(&content.next_chunk);
            (missing, content.is_writing(), in_order, state.metadata.size)
        };
        let Some(&last) = missing.last() else { return Ok(()) };
        if is_writing {
            // What is read must have what was written.
            self.settle(Arrival::Queue)?;
        }
        let handle = match self.open_handle(false) {
            // Made by this kernel, and not readable by the user that serves: it is open for both.
            Err(Errno::EACCES) => self.open_handle(true)?,
            result => result?,
        };
        let chunk_end = size.div_ceil(PAGE * CHUNK_PAGES);
        let window = {
            let content = &mut self.state.lock().content;
            let next = (content.ahead * 2).clamp(FIRST_AHEAD, MOST_AHEAD);
            content.ahead = if in_order { next } else { 0 };
            content.ahead
        };
        let ahead = if in_order { (last + 1)..(last + 1 + window).min(chunk_end) } else { 0..0 };
        let mut result = Ok(());
        for chunk in missing.into_iter().chain(ahead) {
            match self.bring_chunk(chunk, &handle) {
                Ok(()) => {}
                Err(Errno::EIOCBQUEUED) => result = Err(Errno::EIOCBQUEUED),
                // Ahead of what is wanted: not needed yet.
                Err(_) if chunk > last => break,
                Err(error) => return Err(error),
            }
        }
        result
    }

    fn bring_chunk(&self, chunk: u64, handle: &Arc<Handle>) -> Result<(), Errno> {
        let first = chunk * CHUNK_PAGES;
        {
            let content = &self.state.lock().content;
            if (first..first + CHUNK_PAGES).all(|page| content.pages.contains_key(&page)) {
                return Ok(());
            }
        }
        let (size, epoch) = {
            let state = self.state.lock();
            (state.metadata.size, state.content.epoch)
        };
        let pages = size.div_ceil(PAGE).saturating_sub(first).min(CHUNK_PAGES);
        let handle = handle.clone();
        let question = Question::Read { node: self.number, chunk };
        let found = self.remote.ask(question, |client| async move {
            let length = (pages * PAGE) as usize;
            let bytes = client.read(&handle, first * PAGE, length).await?;
            let mut frames = Vec::new();
            frames.try_reserve_exact(pages as usize).map_err(|_| Errno::ENOMEM)?;
            for part in 0..pages as usize {
                let frame = base::memory::reserve::zeroed()?;
                let start = (part * PAGE_SIZE).min(bytes.len());
                let end = (start + PAGE_SIZE).min(bytes.len());
                frame.write(0, bytes.get(start..end).unwrap_or_default());
                frames.push(frame);
            }
            Ok(Found::Pages(frames))
        })?;
        let Found::Pages(frames) = found else { return Err(Errno::EIO) };
        let mut added = Vec::new();
        let mut state = self.state.lock();
        if state.content.epoch != epoch {
            return Err(Errno::EIOCBQUEUED);
        }
        for (page, frame) in (first..).zip(frames) {
            if !state.content.pages.contains_key(&page) {
                tree::insert(&mut state.content.pages, page, frame);
                added.push(page);
            }
        }
        // Past the end of the file: the size has changed meanwhile.
        let size = state.metadata.size;
        if size < (first + CHUNK_PAGES) * PAGE {
            let gone = state.content.cut(size);
            drop(state);
            self.remote.count_dirty(gone.1);
        } else {
            drop(state);
        }
        self.remote.note_pages(&self.itself, added.into_iter());
        Ok(())
    }

    pub(super) fn read_content(&self, offset: u64, sink: &mut dyn Sink) -> Result<usize, Errno> {
        let size = self.state.lock().metadata.size;
        let wanted = (sink.remaining() as u64).min(size.saturating_sub(offset)).min(MOST_AT_ONCE);
        if wanted == 0 {
            return Ok(0);
        }
        let (first, end) = (offset / PAGE, (offset + wanted).div_ceil(PAGE));
        self.bring_in(first, end)?;
        let mut state = self.state.lock();
        let end = (offset + wanted).min(state.metadata.size);
        let mut at = offset;
        while at < end {
            let Some(frame) = state.content.pages.get(&(at / PAGE)) else { break };
            let within = (at % PAGE) as usize;
            let length = (PAGE_SIZE - within).min((end - at) as usize);
            let moved = frame.read_into(within, length, sink);
            at += moved as u64;
            if moved < length {
                break;
            }
        }
        state.content.next_chunk = at.div_ceil(PAGE * CHUNK_PAGES);
        drop(state);
        if at == offset && sink.remaining() > 0 && end > offset {
            // Either the sink took nothing, or the page went again before it was used.
            let is_there = self.state.lock().content.pages.contains_key(&first);
            if !is_there {
                return Err(Errno::EIOCBQUEUED);
            }
        }
        Ok((at - offset) as usize)
    }

    /// The frame of a page.
    pub(super) fn content_page(&self, index: u64) -> Result<Frame, Errno> {
        if index >= self.state.lock().metadata.size.div_ceil(PAGE) {
            return Err(Errno::EFAULT);
        }
        self.bring_in(index, index + 1)?;
        self.state.lock().content.pages.get(&index).cloned().ok_or(Errno::EIOCBQUEUED)
    }

    pub(super) fn cached_pages(&self, first: u64, into: &mut [Option<Frame>]) {
        let state = self.state.lock();
        for (slot, index) in into.iter_mut().zip(first..) {
            if slot.is_none() {
                *slot = state.content.pages.get(&index).cloned();
            }
        }
    }
}
