//! Calls that change what is mapped: `munmap`, `mprotect`, `mremap`, `brk`. Each holds the change of its
//! space (`memory::Change`) and works in turns.
//!
//! A caller that has been killed stops after a turn. What is left of its memory is consistent, and goes
//! with it.

use core::ops::Range;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::memory::*;

use super::{rounded, update_limits};
use crate::call::{Call, SysResult, in_turns};
use crate::memory::{
    Change, MapRequest, Move, RemapRequest, USER_END, is_page_aligned, is_user_range, page_ceil,
    page_floor,
};

/// Takes everything out of `range`, which may be empty.
async fn clear(call: &Call, change: &mut Change, range: Range<u64>) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    let end = range.end;
    in_turns(&call.thread, range.start, |at| Ok(change.unmap_part(at..end))).await?;
    change.space().forget_sites(range);
    Ok(())
}

/// Takes everything out of a range that is about to be mapped, if it is more than one step can take.
///
/// # Errors
/// Those of `AddressSpace::map`, before anything is changed.
pub async fn make_room(
    call: &Call,
    change: &mut Change,
    range: Range<u64>,
    request: &MapRequest,
) -> Result<(), Errno> {
    if change.space().is_one_part(range.clone()) {
        return Ok(());
    }
    change.space().check_map(request)?;
    clear(call, change, range).await
}

/// `munmap(start, length)`
pub async fn munmap(call: &Call) -> SysResult {
    let (start, length) = (call.argument(0), call.argument(1));
    if !is_page_aligned(start) || !is_user_range(start, length) || length == 0 {
        return Err(Errno::EINVAL);
    }
    let range = rounded(start, length).ok_or(Errno::EINVAL)?;
    let mut change = call.thread.space().begin_change().await;
    change.space().check_unmap(&range)?;
    clear(call, &mut change, range).await?;
    Ok(0)
}

/// `mprotect(start, length, protection)`
pub async fn mprotect(call: &Call) -> SysResult {
    let (start, length) = (call.argument(0), call.argument(1));
    let raw = call.argument(2) as u32;
    let grows = raw & (PROT_GROWSDOWN | PROT_GROWSUP);
    if grows == PROT_GROWSDOWN | PROT_GROWSUP || !is_page_aligned(start) {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let range = rounded(start, length).filter(|range| range.end > start).ok_or(Errno::ENOMEM)?;
    let rest = raw & !(grows | PROT_SEM);
    let mut protection = Protection::from_bits(rest).ok_or(Errno::EINVAL)?;
    let personality = call.process().personality.load(Ordering::Relaxed);
    if protection.contains(Protection::READ) && personality & READ_IMPLIES_EXEC != 0 {
        protection |= Protection::EXECUTE;
    }
    if grows & PROT_GROWSUP != 0 {
        return Err(Errno::EINVAL);
    }
    update_limits(call);
    let mut change = call.thread.space().begin_change().await;
    let (part, result) = change.space().check_protect(range, protection, grows != 0)?;
    let next = |at| Ok(change.protect_part(at..part.end, protection));
    in_turns(&call.thread, part.start, next).await?;
    result?;
    Ok(0)
}

/// `brk(address)`
pub async fn brk(call: &Call) -> SysResult {
    let address = call.argument(0);
    update_limits(call);
    let space = call.thread.space();
    let mut change = space.begin_change().await;
    let surplus = space.above_break(address);
    clear(call, &mut change, surplus).await?;
    Ok(space.set_break(address))
}

/// `mremap(address, old length, new length, flags, new address)`
pub async fn mremap(call: &Call) -> SysResult {
    let request = decode_remap(call)?;
    update_limits(call);
    let space = call.thread.space();
    let mut change = space.begin_change().await;
    for range in space.check_remap(&request)? {
        clear(call, &mut change, range).await?;
    }
    let (start, transfer) = change.remap(request)?;
    let Some(transfer) = transfer else { return Ok(start) };
    let old = transfer.old();
    let mut reached = old.start;
    let part = |at| {
        reached = at;
        change.move_part(&transfer, at)
    };
    match in_turns(&call.thread, old.start, part).await {
        Ok(()) => change.end_move(transfer),
        Err(Errno::ENOMEM) => {
            let back = |at| Ok(change.move_part_back(&transfer, at, reached));
            in_turns(&call.thread, old.start, back).await?;
            change.give_up_move(&transfer, request.new_length);
            return Err(Errno::ENOMEM);
        }
        Err(killed) => return Err(killed),
    }
    Ok(start)
}

fn decode_remap(call: &Call) -> Result<RemapRequest, Errno> {
    let address = call.argument(0);
    let flags = call.argument(3);
    let known = u64::from(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP);
    let has = |flag: u32| flags & u64::from(flag) != 0;
    if flags & !known != 0
        || (has(MREMAP_FIXED) && !has(MREMAP_MAYMOVE))
        || (has(MREMAP_DONTUNMAP) && (!has(MREMAP_MAYMOVE) || call.argument(1) != call.argument(2)))
        || !is_page_aligned(address)
    {
        return Err(Errno::EINVAL);
    }
    let old_length = page_ceil(call.argument(1)).ok_or(Errno::EINVAL)?;
    let new_length = page_ceil(call.argument(2)).ok_or(Errno::EINVAL)?;
    if new_length == 0 {
        return Err(Errno::EINVAL);
    }
    if has(MREMAP_FIXED) && !is_page_aligned(call.argument(4)) {
        return Err(Errno::EINVAL);
    }
    if new_length > USER_END {
        return Err(if has(MREMAP_FIXED) { Errno::EINVAL } else { Errno::ENOMEM });
    }
    let movement = if has(MREMAP_FIXED) {
        Move::To(call.argument(4))
    } else if has(MREMAP_MAYMOVE) {
        Move::Anywhere
    } else {
        Move::Never
    };
    Ok(RemapRequest {
        address,
        old_length,
        new_length,
        movement,
        keep_old: has(MREMAP_DONTUNMAP),
        hint: if has(MREMAP_DONTUNMAP) { page_floor(call.argument(4)) } else { 0 },
    })
}
