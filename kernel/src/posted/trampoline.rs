//! Threads of unmodified programs: what the kernel does when one of them traps, faults or gets a signal
//! in the trampoline or at a patched site.
//!
//! The rule: nobody but the trampoline itself ever sees a thread in the trampoline. Before anything is
//! done with the thread's registers (a call by trap, a signal, its end), it is put back to its site:
//!
//! ```text
//! not yet submitted    before the call, which it makes again
//! submitted            the kernel waits for the answer, or cancels; then behind the call
//! answered             behind the call
//! ```
//!
//! So handlers, `fork`, `vfork` and restarts find what they would find without a trampoline.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::arch::x86_64::signal::register;
use abi::syspage::ENTRY_COUNT;
use base::user::UserContext;
use hal::{Trap, UserContext as _};
use policy::table::number;

use super::calls::bind;
use super::syspage::{Origin, Syspage};
use crate::call::{SysResult, decode};
use crate::memory::{AddressSpace, PAGE, Sites};
use crate::process::Thread;
use crate::signal;

/// The answer of a posted call that the kernel finished, and its number.
pub struct Finished {
    /// Number of the call.
    pub number: usize,
    /// Its answer.
    pub result: SysResult,
}

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// It is the program's own.
    None,
    /// There is no call of that number: its answer is in the registers, or the thread makes the call
    /// again with the half of the number that counts.
    NoSuchCall,
    /// The program called a null pointer; the registers say so again.
    NullCall,
}

/// A thread begins to run a program: its trampoline finds a stand-in that permits nothing.
pub fn stand_in(space: &AddressSpace, context: &mut UserContext) {
    if let Some(sites) = space.sites().filter(|sites| !sites.has_given_up()) {
        context.set_second_pointer(sites.stand_in());
    }
}

/// The program sets the second segment base itself: the trampoline cannot be used any more. What the
/// program set is put into the registers by the caller, afterwards.
pub async fn give_up(thread: &Thread, space: &AddressSpace) {
    if let Some(sites) = space.sites() {
        sites.give_up(space);
        if thread.syspage().is_some_and(|syspage| !syspage.is_programs_own()) {
            super::leave(thread).await;
        }
    }
}

/// The thread's calls are restricted now: it posts no more, so that each of them is looked at.
pub async fn retire(thread: &Thread, space: &AddressSpace, context: &mut UserContext) {
    if thread.syspage_id.load(Ordering::Relaxed) != 0 {
        super::leave(thread).await;
        stand_in(space, context);
    }
}

/// The second segment base as the program knows it.
pub fn second_pointer(space: &AddressSpace, context: &UserContext) -> u64 {
    match space.sites() {
        Some(sites) if !sites.has_given_up() => 0,
        _ => context.second_pointer(),
    }
}

/// Takes the return address off the stack of a thread in the trampoline.
fn pop(space: &AddressSpace, context: &mut UserContext) -> Option<u64> {
    let stack = context.stack_pointer();
    let address = space.word_now(stack)?;
    context.set_stack_pointer(stack.wrapping_add(8));
    context.set_instruction_pointer(address);
    Some(address)
}

/// A system call trapped: puts a thread that comes from the trampoline back to its site, and lets it
/// post its next calls; or patches the site.
#[inline]
pub fn arrive(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &Arc<AddressSpace>,
    sites: &Sites,
) {
    let after = context.instruction_pointer();
    if after.wrapping_sub(sites.code()) >= PAGE {
        sites.note_trap(space, after, context);
        return;
    }
    if after != sites.code() + sites.trampoline.trapped {
        return;
    }
    pop(space, context);
    let may_post = !sites.has_given_up() && !thread.restrictions.is_active();
    if thread.syspage_id.load(Ordering::Relaxed) == 0 && may_post {
        let origin = Origin::Trampoline { sites: sites.table(), code: sites.code() };
        if let Ok(syspage) = bind(thread, origin) {
            context.set_second_pointer(syspage.control_address());
        }
    }
}

/// Puts a thread that may be in the trampoline back to its site, before signals are delivered or the
/// thread ends.
pub async fn settle(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &AddressSpace,
    sites: &Sites,
) -> Option<Finished> {
    let address = context.instruction_pointer();
    let offset = address.wrapping_sub(sites.code());
    let trampoline = sites.trampoline;
    if address >= PAGE && offset >= PAGE {
        return None;
    }
    let before = address < PAGE || offset < trampoline.published;
    if before {
        let stack = context.stack_pointer();
        if let Some(after) = space.word_now(stack).filter(|after| sites.has(*after)) {
            context.set_stack_pointer(stack.wrapping_add(8));
            context.set_instruction_pointer(after - trampoline.patch.len() as u64);
        }
        return None;
    }
    if offset < trampoline.consumed {
        return finish(thread, context, space).await;
    }
    if offset <= trampoline.counted {
        if offset < trampoline.counted
            && let Some(syspage) = own(thread)
        {
            syspage.parts().notification.advance();
        }
        pop(space, context);
    }
    None
}

fn own(thread: &Thread) -> Option<Arc<Syspage>> {
    thread.syspage().filter(|syspage| !syspage.is_programs_own())
}

/// Waits for the answer to the call that the trampoline has submitted. A signal cancels the call, which
/// then answers with a restart code unless it was faster.
pub async fn finish(
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &AddressSpace,
) -> Option<Finished> {
    let syspage = own(thread)?;
    let parts = syspage.parts();
    let index = parts.notification.position() as usize % ENTRY_COUNT;
    let entries = &parts.entries;
    let is_settled =
        || (!entries.is_submitted(index) || syspage.release_withheld(index)).then_some(());
    if is_settled().is_none() {
        syspage.ring();
        let answered = syspage.wait_until(is_settled);
        if signal::interruptible(&**thread, answered).await.is_err() {
            // Whoever took it can be told; what nobody has taken yet is taken soon. But a program that
            // scribbles over its entries may wait for one that nobody will ever take: it can be killed.
            let is_told = || (syspage.cancel(index) || is_settled().is_some()).then_some(());
            let settled = async {
                syspage.wait_until(is_told).await;
                syspage.wait_until(is_settled).await;
            };
            if signal::killable(thread, settled).await.is_err() {
                return None;
            }
        }
    }
    let number = entries.number(index);
    let result = decode(entries.take_result(index).unwrap_or_default());
    parts.notification.advance();
    pop(space, context);
    Some(Finished { number, result })
}

/// A fault that a patched site may have caused. `address` is that of a page fault.
pub fn recover(
    context: &mut UserContext,
    space: &AddressSpace,
    sites: &Sites,
    address: Option<u64>,
) -> Recovery {
    let instruction = context.instruction_pointer();
    let length = sites.trampoline.patch.len() as u64;
    if instruction == sites.code() + sites.trampoline.bad {
        context.set_instruction_pointer(0);
        return Recovery::NullCall;
    }
    let is_unknown_number = if instruction < PAGE || address == Some(instruction) {
        // The site has called its number, where no code is.
        let caller = space.word_now(context.stack_pointer());
        caller.is_some_and(|after| sites.has(after)) && pop(space, context).is_some()
    } else if address.is_none() && sites.has(instruction.wrapping_add(length)) {
        // The number is no address at all.
        context.set_instruction_pointer(instruction + length);
        true
    } else {
        false
    };
    if !is_unknown_number {
        return Recovery::None;
    }
    let number = context.general_registers()[register::RAX];
    if number > u64::from(u32::MAX) {
        // Only the lower half names a call: the site makes it again with that.
        context.set_return_value(number & u64::from(u32::MAX));
        context.set_instruction_pointer(context.instruction_pointer() - length);
    } else {
        context.set_return_value(Errno::ENOSYS.to_return_value().cast_unsigned());
    }
    Recovery::NoSuchCall
}

/// Makes a fault on the low page look as if nothing were there.
pub fn hide(sites: Option<&Arc<Sites>>, trap: &mut Trap) {
    if let Trap::PageFault { address, present, by_key, .. } = trap
        && address.0 < PAGE
        && sites.is_some()
    {
        *present = false;
        *by_key = false;
    }
}

/// Whether this is the call by which the trampoline asks for its answer.
pub fn is_finish(number: usize, context: &UserContext, sites: Option<&Arc<Sites>>) -> bool {
    let from = context.instruction_pointer();
    number == number::ferry_finish
        && sites.is_some_and(|sites| from.wrapping_sub(sites.code()) < PAGE)
}

/// The null pointer that was called, as a fault.
pub const NULL_CALL: Trap = Trap::PageFault {
    address: hal::VirtAddr(0),
    write: false,
    execute: true,
    present: false,
    by_key: false,
};
