//! Writes to regular files of a share: bytes go into a queue of the file, from which one task sends them in order, and into the
//! pages that are cached.

use super::content::{Arrival, CHUNK_PAGES, Content, MOST_QUEUED, PAGE, PART};
use super::server::Handle;
use super::{Node, dirty};
use crate::mapped;
use crate::metadata::Timestamp;
use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::io::Source;
use base::{task, time};
use core::ops::Range;

impl Node {
    /// Takes bytes to be written from `offset` on, or at the end; where they go, and how many.
    pub(super) fn write_content(
        self: &Arc<Node>,
        offset: Option<u64>,
        source: &mut dyn Source,
    ) -> Result<(u64, usize), Errno> {
        // Stays until `fsync` has told it: an attempt that may not wait passes errors over.
        if let Some(error) = self.state.lock().content.error {
            return Err(error);
        }
        if self.remote.server.has_lost_journal() {
            return Err(Errno::EROFS);
        }
        let writer = self.open_handle(true)?;
        if self.state.lock().content.queued >= MOST_QUEUED {
            self.settle(Arrival::Queue)?;
        }
        if dirty::is_too_much() {
            self.remote.wait_for_room()?;
        }
        let mut left = usize::try_from(self.find_room(offset, source.remaining() as u64)?)
            .unwrap_or(usize::MAX);
        let mut parts = Vec::new();
        let mut done = 0;
        let mut failure = None;
        while source.remaining() > 0 && left > 0 {
            let mut part = Vec::new();
            let room = source.remaining().min(PART).min(left);
            if part.try_reserve_exact(room).is_err() || parts.try_reserve(1).is_err() {
                failure = Some(Errno::ENOMEM);
                break;
            }
            part.resize(room, 0);
            // A page of the writer's may be missing: what is there goes.
            let taken = source.read(&mut part);
            part.truncate(taken);
            if taken == 0 {
                break;
            }
            parts.push(part);
            done += taken;
            left -= taken;
            if taken < room {
                break;
            }
        }
        let start = self.enqueue(offset, parts);
        if done > 0 {
            let was_sending = core::mem::replace(&mut self.state.lock().content.is_sending, true);
            if !was_sending && !self.begin_sending(writer) {
                return Err(Errno::ENOMEM);
            }
        }
        match failure {
            Some(error) if done == 0 => Err(error),
            _ => Ok((start, done)),
        }
    }

    /// How many of so many bytes may be taken. Where this kernel alone writes, no more than there is room
    /// for, `ENOSPC` for none: a write that goes on behind the writer's back must find room. What room
    /// there is shows when everything has been written, so that is waited for when it is scarce.
    pub(super) fn find_room(&self, offset: Option<u64>, length: u64) -> Result<u64, Errno> {
        if !self.remote.server.is_ours_alone() {
            return Ok(length);
        }
        let is_kept = {
            let state = self.state.lock();
            let (size, blocks) = (state.metadata.size, state.metadata.blocks);
            let end = offset.unwrap_or(size).saturating_add(length);
            // What has its blocks already needs no more.
            end <= size && blocks * 512 >= size && !state.content.is_writing()
        };
        if is_kept || self.remote.free_bytes() >= length {
            return Ok(length);
        }
        self.settle(Arrival::Queue)?;
        match self.remote.free_bytes() {
            free if free >= length => Ok(length),
            free if free >= PAGE => Ok(free - free % PAGE),
            _ => Err(Errno::ENOSPC),
        }
    }

    /// Puts bytes into the queue and into cached pages, from `offset` on or at the end, in one step; where.
    fn enqueue(&self, offset: Option<u64>, parts: Vec<Vec<u8>>) -> u64 {
        let mut state = self.state.lock();
        let start = offset.unwrap_or(state.metadata.size);
        let (mut at, now) = (start, Timestamp::now());
        for bytes in parts {
            let end = at + bytes.len() as u64;
            for page in at / PAGE..end.div_ceil(PAGE) {
                let Some(frame) = state.content.pages.get(&page) else { continue };
                let (from, to) = (at.max(page * PAGE), end.min((page + 1) * PAGE));
                let part = bytes.get((from - at) as usize..(to - at) as usize);
                frame.write((from % PAGE) as usize, part.unwrap_or_default());
            }
            state.metadata.blocks += (bytes.len() as u64).div_ceil(512);
            state.content.push((at, bytes), now, &self.remote);
            at = end;
        }
        if at > start {
            state.metadata.size = state.metadata.size.max(at);
            (state.metadata.modified, state.metadata.changed) = (now, now);
            let chunk = PAGE * CHUNK_PAGES;
            self.spoil(&mut state.content, start / chunk..at.div_ceil(chunk));
        }
        start
    }

    /// What is being read of these chunks is old. Called with the state locked.
    pub(super) fn spoil(&self, content: &mut Content, chunks: Range<u64>) {
        content.epoch += 1;
        self.remote.spoil_reads(self.number, chunks);
    }

    /// Has the queue sent. Without memory for a task nothing is: what is queued is lost, and that is told.
    pub(super) fn begin_sending(self: &Arc<Node>, writer: Arc<Handle>) -> bool {
        let is_begun = task::spawn(self.remote.options.core, self.clone().send(writer)).is_ok();
        if !is_begun {
            self.give_up(Errno::ENOMEM);
        }
        is_begun
    }

    fn give_up(&self, error: Errno) {
        let mut state = self.state.lock();
        let content = &mut state.content;
        let lost = core::mem::take(&mut content.queue);
        self.remote.remove_queued(content.queued as u64);
        (content.queued, content.is_sending) = (0, false);
        content.has_lost(error);
        let dropped = content.take_pages();
        drop(state);
        mapped::pages_replaced(self.id(), dropped);
        drop(lost);
        self.arrived.wake_all();
    }

    /// Sends what is queued, in order, until nothing is left.
    async fn send(self: Arc<Node>, writer: Arc<Handle>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.content.queue.pop_front();
                if next.is_none() {
                    state.content.is_sending = false;
                    // The server's time of change will be another: ask soon, and keep the pages.
                    state.fetched_ns = state.fetched_ns.min(time::now_ns());
                }
                next
            };
            let Some((offset, bytes, when)) = next else { break };
            let result = self.remote.server.write(&writer, offset, &bytes, when).await;
            self.remote.count_free(&writer).await;
            let mut state = self.state.lock();
            state.content.queued = state.content.queued.saturating_sub(bytes.len());
            self.remote.remove_queued(bytes.len() as u64);
            let mut dropped = BTreeMap::new();
            if let Err(error) = result {
                // The cache has what the server has not.
                let is_journal_lost = self.remote.server.has_lost_journal();
                state.content.has_lost_write(error, is_journal_lost);
                dropped = state.content.take_pages();
            }
            drop(state);
            mapped::pages_replaced(self.id(), dropped);
        }
        // Whatever the server now says of size and time is that of these pages.
        let handle = self.handle();
        if let Ok(attributes) = self.remote.server.attributes(&handle).await
            && attributes.number == self.number
        {
            let mut state = self.state.lock();
            let is_ours =
                !state.content.is_writing() && state.metadata.size == attributes.metadata.size;
            if is_ours {
                state.content.version = (attributes.metadata.size, attributes.metadata.modified);
                state.metadata = attributes.metadata;
                state.fetched_ns = time::now_ns();
            }
        }
        self.arrived.wake_all();
    }
}
