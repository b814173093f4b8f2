//! The file table: which open file each descriptor names.
//!
//! One table belongs to a process, or to several threads and processes that share it
//! (`CLONE_FILES`). The lowest free descriptor is found through a bitmap, one word at a time, from a
//! hint below which nothing is free. A descriptor can be reserved before its file is open, so that
//! `open` fails for want of descriptors before it has touched the file system; a reserved descriptor
//! is taken but not open yet.
//!
//! Lock rule: everything is under one lock (`FILE_TABLE`). Files are dropped, which may run their
//! close, only after it is released. Closing a descriptor drops the record locks that its process
//! holds on the file, as POSIX wants; the table's number is the owner of those locks.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use base::sync::{Mutex, rank};
use base::task;
use fs::{NodeKind, OpenFile};

/// Most descriptors of a table, whatever the limits say (as `/proc/sys/fs/nr_open`).
pub const DESCRIPTOR_LIMIT: u64 = 1 << 20;

const WORD_BITS: usize = 64;
const FIRST_CAPACITY: usize = 64;

/// Descriptors that are closed before others have the core.
const CLOSED_AT_ONCE: usize = 256;

/// Descriptors that are copied before others have the core, and to how many a table is copied in one go.
const COPIED_AT_ONCE: usize = 4096;
/// How often the copy of a large table begins again because somebody has changed it. After that it is copied
/// in one go.
const COPY_ATTEMPTS: usize = 4;

/// Which descriptors are closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// All.
    All,
    /// Those that `execve` closes.
    ByExec,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Descriptors and their open files.
pub struct FileTable {
    /// Owner of the record locks that are taken through this table.
    number: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Open files by descriptor; `None` where free or only reserved.
    files: Vec<Option<Arc<OpenFile>>>,
    /// Bit set: the descriptor is open or reserved. One word for 64 entries of `files`.
    taken: Vec<u64>,
    /// Bit set: the descriptor is closed by `execve`.
    close_on_exec: Vec<u64>,
    /// No descriptor below is free.
    lowest_free: usize,
    /// How many are open.
    open_count: usize,
    /// Grows with every change.
    changes: u64,
}

/// A descriptor that is taken but not open yet. Gives it back when dropped.
pub struct Reservation {
    table: Arc<FileTable>,
    descriptor: usize,
    is_installed: bool,
}

fn index_of(descriptor: i32) -> Result<usize, Errno> {
    usize::try_from(descriptor).map_err(|_| Errno::EBADF)
}

fn descriptor_of(index: usize) -> i32 {
    // A table holds at most `DESCRIPTOR_LIMIT` entries.
    i32::try_from(index).unwrap_or(i32::MAX)
}

fn bit(index: usize) -> u64 {
    1 << (index % WORD_BITS)
}

impl Inner {
    fn is_taken(&self, index: usize) -> bool {
        self.taken.get(index / WORD_BITS).is_some_and(|word| word & bit(index) != 0)
    }

    fn set_bit(words: &mut [u64], index: usize, value: bool) {
        if let Some(word) = words.get_mut(index / WORD_BITS) {
            if value {
                *word |= bit(index);
            } else {
                *word &= !bit(index);
            }
        }
    }

    /// Makes room for `index`.
    fn grow(&mut self, index: usize) -> Result<(), Errno> {
        if index < self.files.len() {
            return Ok(());
        }
        let wanted = (index + 1).next_power_of_two().max(FIRST_CAPACITY);
        let words = wanted / WORD_BITS;
        self.files.try_reserve_exact(wanted - self.files.len()).map_err(|_| Errno::ENOMEM)?;
        self.taken.try_reserve_exact(words - self.taken.len()).map_err(|_| Errno::ENOMEM)?;
        self.close_on_exec
            .try_reserve_exact(words - self.close_on_exec.len())
            .map_err(|_| Errno::ENOMEM)?;
        self.files.resize(wanted, None);
        self.taken.resize(words, 0);
        self.close_on_exec.resize(words, 0);
        Ok(())
    }

    /// The lowest free descriptor that is not below `minimum`.
    fn find_free(&self, minimum: usize) -> usize {
        let start = minimum.max(self.lowest_free);
        let mut word_index = start / WORD_BITS;
        let mut ignored = bit(start) - 1;
        while let Some(word) = self.taken.get(word_index) {
            let free = !(word | ignored);
            if free != 0 {
                return word_index * WORD_BITS + free.trailing_zeros() as usize;
            }
            ignored = 0;
            word_index += 1;
        }
        start.max(word_index * WORD_BITS)
    }

    /// Takes the lowest free descriptor from `minimum` on; `EMFILE` when it is not below `limit`.
    fn take(&mut self, minimum: usize, limit: u64, close_on_exec: bool) -> Result<usize, Errno> {
        let index = self.find_free(minimum);
        if index as u64 >= limit.min(DESCRIPTOR_LIMIT) {
            return Err(Errno::EMFILE);
        }
        self.grow(index)?;
        Inner::set_bit(&mut self.taken, index, true);
        Inner::set_bit(&mut self.close_on_exec, index, close_on_exec);
        if minimum <= self.lowest_free {
            self.lowest_free = index + 1;
        }
        Ok(index)
    }

    /// The first descriptor from `from` on that is taken, and closed by `execve` if only those are meant;
    /// the end of the table when there is none.
    fn next_taken(&self, from: usize, which: Closed) -> usize {
        let mut ignored = bit(from) - 1;
        for (index, taken) in self.taken.iter().enumerate().skip(from / WORD_BITS) {
            let marks = match which {
                Closed::All => u64::MAX,
                Closed::ByExec => self.close_on_exec.get(index).copied().unwrap_or(0),
            };
            let found = taken & marks & !ignored;
            if found != 0 {
                return index * WORD_BITS + found.trailing_zeros() as usize;
            }
            ignored = 0;
        }
        self.files.len()
    }

    fn install(&mut self, index: usize, file: Arc<OpenFile>) {
        self.changes += 1;
        if let Some(entry) = self.files.get_mut(index) {
            *entry = Some(file);
            self.open_count += 1;
        }
    }

    /// Makes a descriptor free and hands out its file.
    fn release(&mut self, index: usize) -> Option<Arc<OpenFile>> {
        self.changes += 1;
        let file = self.files.get_mut(index).and_then(Option::take);
        if file.is_some() {
            self.open_count -= 1;
        }
        Inner::set_bit(&mut self.taken, index, false);
        self.lowest_free = self.lowest_free.min(index);
        file
    }
}

impl FileTable {
    /// An empty table.
    pub fn new() -> FileTable {
        FileTable::with(Inner::default())
    }

    fn with(inner: Inner) -> FileTable {
        FileTable {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            inner: Mutex::new(&rank::FILE_TABLE, inner),
        }
    }

    /// Number of this table; the owner of record locks taken through it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The open file of a descriptor; `EBADF` when there is none.
    pub fn get(&self, descriptor: i32) -> Result<Arc<OpenFile>, Errno> {
        let index = index_of(descriptor)?;
        match self.inner.lock().files.get(index) {
            Some(Some(file)) => Ok(file.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// The open files of some descriptors, in their order; `None` where there is none.
    pub fn get_some<const COUNT: usize>(
        &self,
        descriptors: &[i32; COUNT],
    ) -> [Option<Arc<OpenFile>>; COUNT] {
        let inner = self.inner.lock();
        descriptors.map(|descriptor| {
            let index = usize::try_from(descriptor).ok()?;
            inner.files.get(index)?.clone()
        })
    }

    /// Gives a file the lowest free descriptor; `EMFILE` when that is not below `limit`
    /// (`RLIMIT_NOFILE`).
    pub fn insert(
        &self,
        file: Arc<OpenFile>,
        close_on_exec: bool,
        limit: u64,
    ) -> Result<i32, Errno> {
        self.insert_from(0, file, close_on_exec, limit)
    }

    /// Gives a file the lowest free descriptor from `minimum` on (`F_DUPFD`): `EINVAL` when `minimum`
    /// is negative or not below `limit`, `EMFILE` when no descriptor is left.
    pub fn insert_from(
        &self,
        minimum: i32,
        file: Arc<OpenFile>,
        close_on_exec: bool,
        limit: u64,
    ) -> Result<i32, Errno> {
        let minimum = usize::try_from(minimum).map_err(|_| Errno::EINVAL)?;
        if minimum > 0 && minimum as u64 >= limit {
            return Err(Errno::EINVAL);
        }
        let mut inner = self.inner.lock();
        let index = inner.take(minimum, limit, close_on_exec)?;
        inner.install(index, file);
        Ok(descriptor_of(index))
    }

    /// Takes the lowest free descriptor for a file that is about to be opened.
    pub fn reserve(
        self: &Arc<Self>,
        close_on_exec: bool,
        limit: u64,
    ) -> Result<Reservation, Errno> {
        let descriptor = self.inner.lock().take(0, limit, close_on_exec)?;
        Ok(Reservation { table: self.clone(), descriptor, is_installed: false })
    }

    /// Makes `descriptor` name `file`, closing what it named (`dup2`, `dup3`). `EBADF` when it is not
    /// below `limit`, `EBUSY` when another thread is about to open it.
    pub fn replace(
        &self,
        descriptor: i32,
        file: Arc<OpenFile>,
        close_on_exec: bool,
        limit: u64,
    ) -> Result<(), Errno> {
        let index = index_of(descriptor)?;
        if index as u64 >= limit.min(DESCRIPTOR_LIMIT) {
            return Err(Errno::EBADF);
        }
        let old = {
            let mut inner = self.inner.lock();
            inner.grow(index)?;
            let old = inner.files.get_mut(index).and_then(Option::take);
            if old.is_some() {
                inner.open_count -= 1;
            } else if inner.is_taken(index) {
                return Err(Errno::EBUSY);
            }
            Inner::set_bit(&mut inner.taken, index, true);
            Inner::set_bit(&mut inner.close_on_exec, index, close_on_exec);
            inner.install(index, file);
            old
        };
        if let Some(old) = old {
            self.closed(old);
        }
        Ok(())
    }

    /// Closes a descriptor: `EBADF` when it is not open.
    pub fn close(&self, descriptor: i32) -> Result<(), Errno> {
        let index = index_of(descriptor)?;
        let file = {
            let mut inner = self.inner.lock();
            match inner.files.get(index) {
                Some(Some(_)) => inner.release(index),
                _ => return Err(Errno::EBADF),
            }
        };
        if let Some(file) = file {
            self.closed(file);
        }
        Ok(())
    }

    /// Whether `execve` closes the descriptor; `EBADF` when it is not open.
    pub fn close_on_exec(&self, descriptor: i32) -> Result<bool, Errno> {
        let index = index_of(descriptor)?;
        let inner = self.inner.lock();
        match inner.files.get(index) {
            Some(Some(_)) => Ok(inner
                .close_on_exec
                .get(index / WORD_BITS)
                .is_some_and(|word| word & bit(index) != 0)),
            _ => Err(Errno::EBADF),
        }
    }

    /// Sets whether `execve` closes the descriptor; `EBADF` when it is not open.
    pub fn set_close_on_exec(&self, descriptor: i32, value: bool) -> Result<(), Errno> {
        let index = index_of(descriptor)?;
        let mut inner = self.inner.lock();
        match inner.files.get(index) {
            Some(Some(_)) => {
                Inner::set_bit(&mut inner.close_on_exec, index, value);
                Ok(())
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Closes open descriptors from `first` to `last`, both included: all, or those that `execve` closes.
    /// Returns where the rest begins, if one part was not all.
    pub fn close_part(&self, first: u32, last: u32, which: Closed) -> Option<u32> {
        let mut next = first as usize;
        for _ in 0..CLOSED_AT_ONCE {
            // One at a time: the lock is short, and nothing is allocated.
            let file = {
                let mut inner = self.inner.lock();
                next = inner.next_taken(next, which);
                if next >= inner.files.len() || next > last as usize {
                    return None;
                }
                next += 1;
                if matches!(inner.files.get(next - 1), Some(Some(_))) {
                    if which == Closed::ByExec {
                        Inner::set_bit(&mut inner.close_on_exec, next - 1, false);
                    }
                    inner.release(next - 1)
                } else {
                    None
                }
            };
            if let Some(file) = file {
                self.closed(file);
            }
        }
        u32::try_from(next).ok()
    }

    /// Marks every open descriptor from `first` to `last`, both included, to be closed by `execve`.
    pub fn mark_range_close_on_exec(&self, first: u32, last: u32) {
        let mut inner = self.inner.lock();
        let end = inner.files.len().min((last as usize).saturating_add(1));
        for index in first as usize..end {
            if matches!(inner.files.get(index), Some(Some(_))) {
                Inner::set_bit(&mut inner.close_on_exec, index, true);
            }
        }
    }

    /// A copy for a new process: the same open files under the same descriptors.
    pub fn duplicate(&self) -> Result<FileTable, Errno> {
        self.duplicate_below(u32::MAX)
    }

    /// As `duplicate_below`, in turns where there are many. The copy is what the table was at one moment: it
    /// begins again when somebody has changed the table meanwhile.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub async fn duplicate_in_turns(&self, end: u32) -> Result<FileTable, Errno> {
        for _ in 0..COPY_ATTEMPTS {
            if self.capacity().min(end as usize) <= COPIED_AT_ONCE {
                break;
            }
            let mut copy = Inner::default();
            let begun = self.inner.lock().changes;
            let is_whole = loop {
                if self.copy_part(&mut copy, end as usize, begun)? {
                    break copy.changes == begun;
                }
                task::yield_now().await;
            };
            if is_whole {
                return Ok(FileTable::with(copy));
            }
            while copy.files.len() > COPIED_AT_ONCE {
                copy.files.truncate(copy.files.len() - COPIED_AT_ONCE);
                task::yield_now().await;
            }
        }
        self.duplicate_below(end)
    }

    /// Copies descriptors below `end` from where `copy` ends. True when nothing is left to do: either all are
    /// there and `copy.changes` is `begun`, or the table has changed since then.
    fn copy_part(&self, copy: &mut Inner, end: usize, begun: u64) -> Result<bool, Errno> {
        let inner = self.inner.lock();
        copy.changes = inner.changes;
        if inner.changes != begun {
            return Ok(true);
        }
        let end = inner.files.len().min(end.next_multiple_of(WORD_BITS));
        let first = copy.files.len();
        let stop = end.min(first + COPIED_AT_ONCE);
        copy.files.try_reserve_exact(end - first).map_err(|_| Errno::ENOMEM)?;
        let words = end.div_ceil(WORD_BITS) - copy.taken.len();
        copy.taken.try_reserve_exact(words).map_err(|_| Errno::ENOMEM)?;
        copy.close_on_exec.try_reserve_exact(words).map_err(|_| Errno::ENOMEM)?;
        let part = inner.files.get(first..stop).unwrap_or_default();
        for (index, files) in (first / WORD_BITS..).zip(part.chunks(WORD_BITS)) {
            let mut taken = 0;
            for (at, file) in (0..).zip(files) {
                // A descriptor that is only reserved is free in the copy.
                taken |= u64::from(file.is_some()) << at;
                copy.files.push(file.clone());
            }
            copy.open_count += taken.count_ones() as usize;
            copy.taken.push(taken);
            copy.close_on_exec.push(taken & inner.close_on_exec.get(index).copied().unwrap_or(0));
        }
        Ok(copy.files.len() >= end)
    }

    /// A copy of the descriptors below `end` (`close_range` with `CLOSE_RANGE_UNSHARE`).
    pub fn duplicate_below(&self, end: u32) -> Result<FileTable, Errno> {
        let inner = self.inner.lock();
        let mut copy = Inner::default();
        let last = inner.files.iter().take(end as usize).rposition(Option::is_some);
        if let Some(last) = last {
            copy.grow(last)?;
            for (index, (entry, file)) in copy.files.iter_mut().zip(&inner.files).enumerate() {
                if index > last {
                    break;
                }
                if let Some(file) = file {
                    *entry = Some(file.clone());
                    copy.open_count += 1;
                    // A descriptor that is only reserved is free in the copy.
                    if let Some(word) = copy.taken.get_mut(index / WORD_BITS) {
                        *word |= bit(index);
                    }
                }
            }
            for (word, (close, taken)) in
                copy.close_on_exec.iter_mut().zip(inner.close_on_exec.iter().zip(&copy.taken))
            {
                *word = close & taken;
            }
        }
        drop(inner);
        copy.lowest_free = 0;
        Ok(FileTable::with(copy))
    }

    /// Open descriptors with their files and marks, in order, for `/proc/PID/fd`.
    pub fn list(&self) -> Vec<(i32, Arc<OpenFile>, bool)> {
        let inner = self.inner.lock();
        let mut list = Vec::new();
        for (index, file) in inner.files.iter().enumerate() {
            if let Some(file) = file {
                let close = inner
                    .close_on_exec
                    .get(index / WORD_BITS)
                    .is_some_and(|word| word & bit(index) != 0);
                list.push((descriptor_of(index), file.clone(), close));
            }
        }
        list
    }

    /// How many descriptors are open.
    pub fn open_count(&self) -> usize {
        self.inner.lock().open_count
    }

    /// Number of entries that the table has room for (`FDSize` in `/proc/PID/status`).
    pub fn capacity(&self) -> usize {
        self.inner.lock().files.len()
    }

    /// What closing a descriptor means for the file itself, beyond dropping it.
    fn closed(&self, file: Arc<OpenFile>) {
        file.file().descriptor_closed(self.number);
        fs::lock::close(file.inode().id(), self.number);
        if file.watches_directory() {
            fs::notify::forget(&file, self.number);
        }
        if net::rights::has_sockets_in_flight() && file.inode().kind() == NodeKind::Socket {
            drop(file);
            net::rights::collect();
        }
    }
}

impl Default for FileTable {
    fn default() -> Self {
        FileTable::new()
    }
}

impl Drop for FileTable {
    fn drop(&mut self) {
        let files = mem::take(&mut self.inner.get_mut().files);
        for file in files.into_iter().flatten() {
            self.closed(file);
        }
    }
}

impl Reservation {
    /// The descriptor.
    pub fn descriptor(&self) -> i32 {
        descriptor_of(self.descriptor)
    }

    /// Makes the descriptor name `file` and returns the descriptor.
    pub fn install(mut self, file: Arc<OpenFile>) -> i32 {
        self.table.inner.lock().install(self.descriptor, file);
        self.is_installed = true;
        self.descriptor()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_installed {
            self.table.inner.lock().release(self.descriptor);
        }
    }
}
