//! Memory policies on a machine with one node: checked, kept, reported.

use abi::Errno;
use abi::memory::placement::*;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::call::{Call, Pace, SysResult, in_turns};
use crate::memory::{Access, NODES, PAGE, Placement, is_page_aligned, page_floor};
use crate::process::access::Observer;
use crate::process::{Capability, Thread, Tid, table};

/// Nodes that a mask may name.
const MOST_NODES: u64 = 1024;
/// Bytes of the masks that are given out.
const MASK_SIZE: u64 = 8;
const WORD: u64 = u64::BITS as u64;

/// Reads a mask of nodes of which `count - 1` bits are given: the first 64 nodes.
async fn read_nodes(call: &Call, address: u64, count: u64) -> Result<u64, Errno> {
    let bits = count.wrapping_sub(1);
    if bits == 0 || address == 0 {
        return Ok(0);
    }
    if bits > PAGE * 8 {
        return Err(Errno::EINVAL);
    }
    let words = bits.div_ceil(WORD);
    let bytes = call.user().read_vector(address, (words * 8) as usize).await?;
    let mut first = 0;
    for (index, chunk) in (0_u64..).zip(bytes.chunks_exact(8)) {
        let mut word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let used = bits - index * WORD;
        if used < WORD {
            word &= (1 << used) - 1;
        }
        if index * WORD >= MOST_NODES && word != 0 {
            return Err(Errno::EINVAL);
        }
        if index == 0 {
            first = word;
        }
    }
    Ok(first)
}

async fn write_nodes(call: &Call, address: u64, count: u64, nodes: u64) -> Result<(), Errno> {
    let size = count.wrapping_sub(1).div_ceil(WORD).saturating_mul(8);
    if size > PAGE {
        return Err(Errno::EINVAL);
    }
    if size > MASK_SIZE {
        call.user().write_zeros(address.wrapping_add(MASK_SIZE), size - MASK_SIZE).await?;
    }
    let bytes = nodes.to_le_bytes();
    let part = bytes.get(..size.min(MASK_SIZE) as usize).unwrap_or_default();
    call.user().write_bytes(address, part).await
}

/// `set_mempolicy(mode, nodes, count)`
pub async fn set_mempolicy(call: &Call) -> SysResult {
    Placement::check_mode(call.unsigned(0))?;
    let nodes = read_nodes(call, call.argument(1), call.argument(2)).await?;
    let placement = Placement::new(call.unsigned(0), nodes)?;
    call.thread.placement.store(placement.map_or(0, Placement::to_word), Ordering::Relaxed);
    Ok(0)
}

/// `get_mempolicy(policy, nodes, count, address, flags)`
pub async fn get_mempolicy(call: &Call) -> SysResult {
    let (mask, count) = (call.argument(1), call.argument(2));
    let (address, flags) = (call.argument(3), call.argument(4));
    let has = |flag| flags & flag != 0;
    if (mask != 0 && count < 1) || flags & !(GET_NODE | GET_ADDRESS | GET_ALLOWED) != 0 {
        return Err(Errno::EINVAL);
    }
    let (value, nodes) = if has(GET_ALLOWED) {
        if has(GET_NODE | GET_ADDRESS) {
            return Err(Errno::EINVAL);
        }
        (0, NODES)
    } else {
        let own = Placement::from_word(call.thread.placement.load(Ordering::Relaxed));
        let placement = if has(GET_ADDRESS) {
            call.thread.space().placement_at(address)?
        } else if address != 0 {
            return Err(Errno::EINVAL);
        } else {
            own
        };
        let value = if has(GET_NODE | GET_ADDRESS) && has(GET_NODE) {
            if has(GET_ADDRESS) {
                call.user().bring_in(page_floor(address), Access::READ).await?;
            } else if !own.is_some_and(Placement::is_interleaved) {
                return Err(Errno::EINVAL);
            }
            0
        } else {
            placement.map_or(DEFAULT, Placement::mode)
        };
        (value, placement.map_or(0, Placement::nodes))
    };
    if call.argument(0) != 0 {
        call.user().write_value(call.argument(0), &value).await?;
    }
    if mask != 0 {
        write_nodes(call, mask, count, nodes).await?;
    }
    Ok(0)
}

/// The page-aligned range of a policy call; `None` when it is empty.
fn range(start: u64, length: u64) -> Result<Option<core::ops::Range<u64>>, Errno> {
    // As on Linux, a length that wraps round counts as 0.
    let length = length.wrapping_add(PAGE - 1) & !(PAGE - 1);
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    Ok((end > start).then_some(start..end))
}

/// `mbind(start, length, mode, nodes, count, flags)`
pub async fn mbind(call: &Call) -> SysResult {
    let (start, mode, flags) = (call.argument(0), call.unsigned(2), call.unsigned(5));
    Placement::check_mode(mode)?;
    let nodes = read_nodes(call, call.argument(3), call.argument(4)).await?;
    if flags & !(STRICT | MOVE | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 {
        call.thread.credentials().require(Capability::Nice)?;
    }
    if !is_page_aligned(start) {
        return Err(Errno::EINVAL);
    }
    let Some(range) = range(start, call.argument(1))? else { return Ok(0) };
    let placement = Placement::new(mode, nodes)?;
    let mut change = call.thread.space().begin_change().await;
    change.space().check_placement(&range)?;
    let part = |at| Ok(change.place_part(at..range.end, placement));
    in_turns(&call.thread, range.start, part).await?;
    Ok(0)
}

/// `set_mempolicy_home_node(start, length, node, flags)`
pub fn set_home_node(call: &Call) -> SysResult {
    let start = call.argument(0);
    if !is_page_aligned(start) || call.argument(3) != 0 || call.argument(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(range) = range(start, call.argument(1))? else { return Ok(0) };
    call.thread.space().check_home(range)?;
    Ok(0)
}

/// The thread that is asked about, if the caller may look into it.
fn target(call: &Call) -> Result<Arc<Thread>, Errno> {
    let thread = match call.int(0) {
        0 => return Ok(call.thread.clone()),
        pid => table::thread_or_init(Tid(pid)).ok_or(Errno::ESRCH)?,
    };
    if !Arc::ptr_eq(&thread.process, call.process()) {
        Observer::of_call(&call.thread).look_into(&thread)?;
    }
    Ok(thread)
}

/// `migrate_pages(process, count, from, to)`
pub async fn migrate_pages(call: &Call) -> SysResult {
    let count = call.argument(1);
    read_nodes(call, call.argument(2), count).await?;
    let to = read_nodes(call, call.argument(3), count).await?;
    target(call)?;
    if to & !NODES != 0 {
        call.thread.credentials().require(Capability::Nice)?;
    }
    if to & NODES == 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// `move_pages(process, count, pages, nodes, status, flags)`
pub async fn move_pages(call: &Call) -> SysResult {
    let flags = call.unsigned(5);
    if flags & !(MOVE | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 {
        call.thread.credentials().require(Capability::Nice)?;
    }
    let space = target(call)?.space();
    let (pages, nodes, status) = (call.argument(2), call.argument(3), call.argument(4));
    let user = call.user();
    let mut pace = Pace::new();
    for index in 0..call.argument(1) {
        let at = |base: u64, size: u64| {
            index.checked_mul(size).and_then(|offset| base.checked_add(offset)).ok_or(Errno::EFAULT)
        };
        let page: u64 = user.read_value(at(pages, 8)?).await?;
        if nodes != 0 {
            let node: i32 = user.read_value(at(nodes, 4)?).await?;
            if node != 0 {
                return Err(Errno::ENODEV);
            }
        }
        let found = match space.is_present(page) {
            Ok(true) => 0,
            Ok(false) => -i32::from(Errno::ENOENT.number() as i16),
            Err(error) => -i32::from(error.number() as i16),
        };
        user.write_value(at(status, 4)?, &found).await?;
        pace.spend(&call.thread, 1).await.map_err(|_| Errno::EINTR)?;
    }
    Ok(0)
}
