//! Calls about the memory of other processes, and calls that few programs use: `process_madvise`,
//! `process_mrelease`, `remap_file_pages`, protection keys.

use abi::Errno;
use abi::memory::Advice;
use alloc::sync::Arc;

use super::{change, populate};
use crate::call::{Call, SysResult};
use crate::memory::{MOST_VECTORS, PAGE, USER_END, is_page_aligned, page_floor};
use crate::process::access::Observer;
use crate::process::pidfd::{self, ProcessFile};
use crate::process::{Capability, Process};

/// The process of the descriptor in argument 0; `EBADF`, or `ESRCH` when it is gone.
fn process(call: &Call) -> Result<Arc<Process>, Errno> {
    let file = call.file(0)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let process = ProcessFile::of(&file)?;
    if pidfd::is_there(process) { Ok(process.clone()) } else { Err(Errno::ESRCH) }
}

/// `process_madvise(pidfd, vectors, count, advice, flags)`
pub async fn process_madvise(call: &Call) -> SysResult {
    const COLD: u32 = 20;
    const PAGE_OUT: u32 = 21;
    const WILL_NEED: u32 = 3;
    const COLLAPSE: u32 = 25;
    if call.unsigned(4) != 0 || call.argument(2) > MOST_VECTORS {
        return Err(Errno::EINVAL);
    }
    let vectors = call.user().read_io_vectors(call.argument(1), call.argument(2)).await?;
    let target = process(call)?;
    let number = call.unsigned(3);
    if !matches!(number, COLD | PAGE_OUT | WILL_NEED | COLLAPSE) {
        return Err(Errno::EINVAL);
    }
    let thread = target.main_thread().ok_or(Errno::ESRCH)?;
    let resources =
        Observer::of_call(&call.thread).look_into(&thread).map_err(|_| Errno::EACCES)?;
    call.thread.credentials().require(Capability::Nice)?;
    let advice = Advice::from_number(number).ok_or(Errno::EINVAL)?;
    let mut done = 0;
    for vector in &vectors {
        let result = match is_page_aligned(vector.address) {
            false => Err(Errno::EINVAL),
            true if vector.length == 0 => Ok(()),
            true => match super::rounded(vector.address, vector.length) {
                None => Err(Errno::EINVAL),
                Some(range) if range.end > USER_END => Err(Errno::ENOMEM),
                Some(range) if advice == Advice::WillNeed => {
                    super::advise_in_turns(call, &resources.space, range, advice).await
                }
                Some(range) => resources.space.advise(range, advice).await,
            },
        };
        match result {
            Ok(()) => done += vector.length,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// `process_mrelease(pidfd, flags)`: a process that ends gives its memory back by itself.
pub fn process_mrelease(call: &Call) -> SysResult {
    if call.unsigned(1) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = process(call)?;
    target.main_thread().ok_or(Errno::ESRCH)?;
    if target.group_exit().is_some() { Ok(0) } else { Err(Errno::EINVAL) }
}

/// `remap_file_pages(start, size, protection, first page, flags)`
pub async fn remap_file_pages(call: &Call) -> SysResult {
    let (start, size) = (page_floor(call.argument(0)), page_floor(call.argument(1)));
    let first = call.argument(3);
    let end = start.checked_add(size).filter(|end| *end > start).ok_or(Errno::EINVAL)?;
    if call.argument(2) != 0 || first.checked_add(size / PAGE).is_none() {
        return Err(Errno::EINVAL);
    }
    super::update_limits(call);
    let space = call.thread.space();
    {
        let mut change = space.begin_change().await;
        let request = space.other_pages(start..end, first)?;
        change::make_room(call, &mut change, start..end, &request).await?;
        space.map(request)?;
    }
    populate(call, &space, start..end).await;
    Ok(0)
}

/// `pkey_alloc(flags, rights)`: programs get no keys, as on a processor without them.
pub fn pkey_alloc(call: &Call) -> SysResult {
    const RIGHTS: u64 = 3;
    if call.argument(0) != 0 || call.argument(1) & !RIGHTS != 0 {
        return Err(Errno::EINVAL);
    }
    Err(Errno::ENOSPC)
}

/// `pkey_mprotect(start, length, protection, key)`: with key −1 it is `mprotect`.
pub async fn pkey_mprotect(call: &Call) -> SysResult {
    let is_plain = call.int(3) == -1;
    if is_plain || !is_page_aligned(call.argument(0)) || call.argument(1) == 0 {
        return change::mprotect(call).await;
    }
    Err(Errno::EINVAL)
}
