//! Moving bytes between two files inside the kernel: sendfile and copy_file_range.

use abi::Errno;
use abi::fs::{MAX_TRANSFER, OpenFlags, PollEvents};
use abi::signal::Signal;
use alloc::vec;
use base::memory::PAGE_SIZE;
use fs::file::{MAX_FILE_SIZE, Transfer};
use fs::{NodeKind, OpenFile, pending};

use super::fanotify;
use super::splice::{pipe_end, to_pipe_from};
use super::support::{NotReady, Turn, after_write, raise, ready_in_turn, usable};
use crate::call::{Call, SysResult};
use crate::process::Resource;

/// Bytes that pass through the kernel at a time.
const PART: usize = 4 * PAGE_SIZE;

/// Where one side of a copy stands.
struct Side<'a> {
    file: &'a OpenFile,
    /// An offset of the caller's, else the file's own position.
    offset: Option<u64>,
}

impl Side<'_> {
    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let mut sink = into;
        let transfer = Transfer { nonblocking: self.file.is_nonblocking(), ..Transfer::PLAIN };
        match self.offset {
            Some(offset) => self.file.read_at(offset, &mut sink, transfer),
            None => self.file.read(&mut sink, transfer),
        }
    }

    fn write(&self, bytes: &[u8], size_limit: u64) -> Result<usize, Errno> {
        let mut source = bytes;
        let transfer = Transfer { size_limit, ..Transfer::PLAIN };
        match self.offset {
            Some(offset) => self.file.write_at(offset, &mut source, transfer, false),
            None => self.file.write(&mut source, transfer),
        }
    }

    fn advance(&mut self, count: usize) {
        if let Some(offset) = &mut self.offset {
            *offset = offset.saturating_add(count as u64);
        }
    }

    /// Gives back what was read but could not be written.
    fn give_back(&mut self, count: usize) {
        match &mut self.offset {
            Some(offset) => *offset = offset.saturating_sub(count as u64),
            None => {
                let back = i64::try_from(count).unwrap_or(0);
                // Sources are seekable, which was checked before.
                let _ = self.file.seek(-back, abi::fs::seek::SEEK_CUR);
            }
        }
    }
}

/// The offset that an argument points to, if it does; not checked.
pub async fn read_offset(call: &Call, address: u64) -> Result<Option<i64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    call.user().read_value(address).await.map(Some)
}

pub async fn write_offset(call: &Call, address: u64, offset: Option<u64>) -> Result<(), Errno> {
    match offset {
        Some(offset) => call.user().write_value(address, &offset).await,
        None => Ok(()),
    }
}

pub async fn sendfile(call: &Call) -> SysResult {
    let offset = read_offset(call, call.argument(2)).await?;
    let from_file = usable(call, 1)?;
    if !from_file.flags().reads() {
        return Err(Errno::EBADF);
    }
    if offset.is_some() && !from_file.file().is_seekable() {
        return Err(Errno::ESPIPE);
    }
    let offset = offset.map(u64::try_from).transpose().map_err(|_| Errno::EINVAL)?;
    let to_file = usable(call, 0)?;
    if !to_file.flags().writes() {
        return Err(Errno::EBADF);
    }
    if !from_file.file().is_seekable() {
        return Err(Errno::EINVAL);
    }
    fanotify::ask_before_read(call, &from_file).await?;
    let count = usize::try_from(call.argument(3)).unwrap_or(usize::MAX).min(MAX_TRANSFER);
    let pipe = pipe_end(&to_file);
    // To a pipe, the flag means nothing.
    if pipe.is_none() && to_file.flags().contains(OpenFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    if let Some(end) = pipe {
        if count == 0 {
            return Ok(0);
        }
        let nonblocking = from_file.is_nonblocking() || to_file.is_nonblocking();
        let mut moved = offset;
        let to = (&*to_file, end);
        let result = to_pipe_from(call, &from_file, &mut moved, to, count, nonblocking).await;
        write_offset(call, call.argument(2), moved).await?;
        return result;
    }
    let mut from = Side { file: &from_file, offset };
    let mut to = Side { file: &to_file, offset: None };
    let result = copy(call, &mut from, &mut to, count).await;
    if offset.is_some() {
        write_offset(call, call.argument(2), from.offset).await?;
    }
    result
}

pub async fn copy_file_range(call: &Call) -> SysResult {
    let from_file = usable(call, 0)?;
    let to_file = usable(call, 2)?;
    let from_offset = read_offset(call, call.argument(1)).await?;
    let to_offset = read_offset(call, call.argument(3)).await?;
    if call.argument(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let is_directory = |file: &OpenFile| file.inode().kind() == NodeKind::Directory;
    if is_directory(&from_file) || is_directory(&to_file) {
        return Err(Errno::EISDIR);
    }
    let is_regular = |file: &OpenFile| file.inode().kind() == NodeKind::Regular;
    if !is_regular(&from_file) || !is_regular(&to_file) {
        return Err(Errno::EINVAL);
    }
    if !from_file.flags().reads()
        || !to_file.flags().writes()
        || to_file.flags().contains(OpenFlags::APPEND)
    {
        return Err(Errno::EBADF);
    }
    if from_file.inode().id().device != to_file.inode().id().device {
        return Err(Errno::EXDEV);
    }
    fanotify::ask_before_read(call, &from_file).await?;
    let start = |offset: Option<i64>, file: &OpenFile| {
        offset.map_or_else(|| file.position(), i64::cast_unsigned)
    };
    let (from_start, to_start) = (start(from_offset, &from_file), start(to_offset, &to_file));
    let wanted = call.argument(4);
    if [from_start, to_start].into_iter().any(|start| start.checked_add(wanted).is_none()) {
        return Err(Errno::EOVERFLOW);
    }
    let count = wanted.min(from_file.inode().metadata().size.saturating_sub(from_start));
    let count = if to_start > MAX_FILE_SIZE { count } else { count.min(room_for(call, to_start)?) };
    let overlaps =
        from_start < to_start.saturating_add(count) && to_start < from_start.saturating_add(count);
    if from_file.inode().id() == to_file.inode().id() && overlaps {
        return Err(Errno::EINVAL);
    }
    if [from_start, to_start].into_iter().any(|start| i64::try_from(start).is_err()) {
        return Err(Errno::EINVAL);
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_TRANSFER);
    let mut from = Side { file: &from_file, offset: from_offset.map(|_| from_start) };
    let mut to = Side { file: &to_file, offset: to_offset.map(|_| to_start) };
    let result = copy(call, &mut from, &mut to, count).await;
    write_offset(call, call.argument(1), from.offset).await?;
    write_offset(call, call.argument(3), to.offset).await?;
    result
}

/// Bytes that may be written from an offset on. `EFBIG`, and a signal, when there are none.
fn room_for(call: &Call, start: u64) -> Result<u64, Errno> {
    let limit = call.process().limits.soft(Resource::FileSize);
    if start >= limit {
        raise(call, Signal::SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    match MAX_FILE_SIZE.saturating_sub(start) {
        0 => Err(Errno::EFBIG),
        room => Ok(room.min(limit - start)),
    }
}

async fn copy(call: &Call, from: &mut Side<'_>, to: &mut Side<'_>, count: usize) -> SysResult {
    let size_limit = call.process().limits.soft(Resource::FileSize);
    let mut buffer = vec![0u8; PART.min(count)];
    let mut done = 0;
    let mut turn = Turn::new();
    let result = 'copy: loop {
        let wanted = buffer.len().min(count - done);
        if wanted == 0 {
            break Ok(());
        }
        let into = buffer.get_mut(..wanted).unwrap_or_default();
        let got = match pending::complete(|| from.read(into)).await {
            Ok(0) => break Ok(()),
            Ok(got) => got,
            Err(error) => break Err(error),
        };
        from.advance(got);
        let mut written = 0;
        while written < got {
            let rest = buffer.get(written..got).unwrap_or_default();
            match pending::complete(|| to.write(rest, size_limit)).await {
                Ok(0) => {
                    from.give_back(got - written);
                    break 'copy Ok(());
                }
                Ok(part) => {
                    written += part;
                    done += part;
                    to.advance(part);
                }
                Err(Errno::EAGAIN) if !to.file.is_nonblocking() => {
                    match ready_in_turn(call, to.file, PollEvents::WRITABLE, None, &mut turn).await
                    {
                        Ok(()) => {}
                        Err(NotReady::TimedOut | NotReady::Interrupted) => {
                            from.give_back(got - written);
                            break 'copy Err(Errno::ERESTARTSYS);
                        }
                    }
                }
                Err(error) => {
                    from.give_back(got - written);
                    match error {
                        Errno::EPIPE => raise(call, Signal::SIGPIPE),
                        Errno::EFBIG if size_limit != u64::MAX => raise(call, Signal::SIGXFSZ),
                        _ => {}
                    }
                    break 'copy Err(error);
                }
            }
        }
        // A long copy lets others have the core, and ends early for a signal.
        base::task::yield_now().await;
        if call.thread.has_attention() && done > 0 {
            break Ok(());
        }
    };
    turn.end(call, to.file, PollEvents::WRITABLE);
    after_write(&call.thread, to.file, done)?;
    match result {
        Err(error) if done == 0 => Err(error),
        _ => Ok(done as u64),
    }
}
