//! The patched sites of an address space: where an unmodified program calls a trampoline instead of
//! the system.
//!
//! A site is known by its *return address*, the one behind it. It is patched only when
//! * a system call has just returned there, so that the two bytes before are an instruction;
//! * the page is private and cannot be written by the program (the patch goes into a private copy);
//! * nothing uses eight bytes below the stack pointer there (`hal`, `may_patch`);
//! * its slot of the table of sites is free.
//!
//! Everything else keeps trapping. Data: a stand-in for the control page, for threads that have no
//! syspage, and the table of sites, by which the trampoline tells its callers from null pointers; both
//! are private pages of the program, so a child gets its own with its own copy of the code.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use base::heap::tree;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use abi::memory::Protection;
use abi::syspage::{ControlPage, NotificationPage, call};
use base::memory::Frame;
use base::sync::{Mutex, Once, rank};
use base::user::UserContext;
use hal::{Contract, Machine, PostTrampoline, UserContext as _};
use policy::patch::{self, Attempt};

use super::{AddressSpace, AreaFlags, PAGE, SharedPage, SharedPlace, page_floor};

/// Places that remember how often a site has trapped.
const REMEMBERED: usize = 64;

/// What all programs share.
struct Shared {
    trampoline: PostTrampoline,
    low_page: Frame,
    code_page: Frame,
}

/// The trampoline, when there can be one.
fn shared() -> Option<&'static Shared> {
    static SHARED: Once<Option<Shared>> = Once::new();
    SHARED.call_once(make_shared).as_ref()
}

fn make_shared() -> Option<Shared> {
    let trampoline = Machine::post_trampoline()?;
    let offsets = trampoline.offsets;
    let agrees = offsets.parked == core::mem::offset_of!(ControlPage, parked)
        && offsets.spin_limit == core::mem::offset_of!(ControlPage, spin_limit)
        && offsets.entries == core::mem::offset_of!(ControlPage, entries)
        && offsets.sites == core::mem::offset_of!(ControlPage, sites)
        && offsets.trampoline == core::mem::offset_of!(ControlPage, trampoline)
        && offsets.permitted == core::mem::offset_of!(ControlPage, permitted)
        && offsets.position
            == size_of::<ControlPage>() + core::mem::offset_of!(NotificationPage, position)
        && offsets.finish_call == call::FINISH;
    if !agrees {
        log::error!("the trampoline is for another layout; programs are not patched");
        return None;
    }
    let page = |fill: fn(&mut [u8])| {
        let mut bytes = vec![0; PAGE as usize];
        fill(&mut bytes);
        let frame = Frame::zeroed().ok()?;
        frame.write(0, &bytes);
        Some(frame)
    };
    let low_page = page(trampoline.fill_low_page)?;
    let code_page = page(trampoline.fill_code_page)?;
    Some(Shared { trampoline, low_page, code_page })
}

/// The sites of one address space.
pub struct Sites {
    /// The trampoline, as the machine describes it.
    pub trampoline: &'static PostTrampoline,
    /// Where the stand-in for a control page is; the table of sites follows.
    data: u64,
    /// Where the trampoline is.
    code: u64,
    /// Return addresses of patched sites.
    patched: Mutex<BTreeSet<u64>>,
    /// Traps at sites that are not patched: return address and `policy::patch` count.
    seen: [AtomicU64; REMEMBERED],
    /// The program uses what the trampoline needs: nothing is patched any more.
    given_up: AtomicBool,
}

impl Sites {
    fn new(trampoline: &'static PostTrampoline, data: u64, code: u64) -> Sites {
        Sites {
            trampoline,
            data,
            code,
            patched: Mutex::new(&rank::SITES, BTreeSet::new()),
            seen: [const { AtomicU64::new(0) }; REMEMBERED],
            given_up: AtomicBool::new(false),
        }
    }

    /// Gives a fresh space the pages that patched programs need. Without them nothing is patched.
    pub fn install(space: &AddressSpace) {
        let Some(shared) = shared() else { return };
        if let Err(errno) = Sites::try_install(space, shared) {
            log::debug!("no trampoline for a program: {errno}");
        }
    }

    fn try_install(space: &AddressSpace, shared: &'static Shared) -> Result<(), Errno> {
        let slots = shared.trampoline.offsets.site_slots as u64;
        let mut pages = Vec::new();
        let stand_in = Frame::zeroed()?;
        let code_page = SharedPage {
            frame: shared.code_page.clone(),
            protection: Protection::READ | Protection::EXECUTE,
            flags: AreaFlags::SHARED,
        };
        pages.push(code_page);
        for page in 0..1 + slots * 8 / PAGE {
            let frame = if page == 0 { stand_in.clone() } else { Frame::zeroed()? };
            pages.push(SharedPage {
                frame,
                protection: Protection::READ,
                flags: AreaFlags::empty(),
            });
        }
        let code = space.map_shared(SharedPlace::Near(0), b"[ferry]", pages)?;
        let data = code + PAGE;
        let offsets = shared.trampoline.offsets;
        stand_in.store_u32(offsets.parked, 1);
        stand_in.store_u64(offsets.sites, data + PAGE);
        stand_in.store_u64(offsets.trampoline, code);
        let low_page = SharedPage {
            frame: shared.low_page.clone(),
            protection: Protection::EXECUTE,
            flags: AreaFlags::SHARED | AreaFlags::HIDDEN,
        };
        space.map_shared(SharedPlace::At(0), b"[ferry]", vec![low_page])?;
        space.set_sites(Arc::new(Sites::new(&shared.trampoline, data, code)));
        Ok(())
    }

    /// Those of a child, whose memory is a copy.
    pub fn inherit(&self) -> Sites {
        let child = Sites::new(self.trampoline, self.data, self.code);
        let patched = self.patched.lock().clone();
        *child.patched.lock() = patched;
        child.given_up.store(self.has_given_up(), Ordering::Relaxed);
        child
    }

    /// What the second segment base of a thread without a syspage points to.
    pub fn stand_in(&self) -> u64 {
        self.data
    }

    /// Where the trampoline is.
    pub fn code(&self) -> u64 {
        self.code
    }

    /// Where the table of sites is.
    pub fn table(&self) -> u64 {
        self.data + PAGE
    }

    /// Whether the program's sites are left alone.
    pub fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether `after` is the return address of a patched site.
    pub fn has(&self, after: u64) -> bool {
        self.patched.lock().contains(&after)
    }

    /// A call trapped at a site that is not patched: patches it when it is time and possible.
    #[inline]
    pub fn note_trap(&self, space: &AddressSpace, after: u64, context: &UserContext) {
        let Some(seen) = self.seen.get(after as usize / 2 % REMEMBERED) else { return };
        let (word, attempt) = patch::count(seen.load(Ordering::Relaxed), after);
        seen.store(word, Ordering::Relaxed);
        if attempt == Attempt::Now && self.patch(space, after, context).is_err() {
            seen.store(patch::refuse(after), Ordering::Relaxed);
        }
    }

    #[cold]
    fn patch(&self, space: &AddressSpace, after: u64, context: &UserContext) -> Result<(), Errno> {
        let trampoline = self.trampoline;
        let site = after.wrapping_sub(trampoline.trap.len() as u64);
        let crosses = page_floor(site) != page_floor(after - 1);
        if self.has_given_up() || crosses || !space.is_private_code(site) {
            return Err(Errno::EACCES);
        }
        let mut bytes = [0; 2];
        if space.read_now(site, &mut bytes) != bytes.len() || bytes != trampoline.trap {
            return Err(Errno::EACCES);
        }
        let read = |address, into: &mut [u8]| space.read_now(address, into);
        if !(trampoline.may_patch)(&read, after, &context.general_registers()) {
            return Err(Errno::EACCES);
        }
        let mut patched = self.patched.lock();
        let slots = trampoline.offsets.site_slots as u64;
        if patched.iter().any(|other| other % slots == after % slots) {
            return Err(Errno::EEXIST);
        }
        // The table first: who comes by the patched site finds it there.
        space.poke(self.table() + after % slots * 8, &after.to_le_bytes())?;
        space.poke(site, &trampoline.patch)?;
        tree::insert_in_set(&mut patched, after);
        Ok(())
    }

    /// Takes all patches back, for a program that uses what the trampoline needs.
    pub fn give_up(&self, space: &AddressSpace) {
        self.given_up.store(true, Ordering::Relaxed);
        let patched = self.patched.lock();
        for after in patched.iter() {
            self.restore(space, *after);
        }
    }

    /// Whether the site that ends at `after` is still patched.
    fn is_ours(&self, space: &AddressSpace, after: u64) -> bool {
        let mut bytes = [0; 2];
        let site = after - self.trampoline.trap.len() as u64;
        space.read_now(site, &mut bytes) == bytes.len() && bytes == self.trampoline.patch
    }

    /// Puts back what was at a site, if it is still patched; false when that is not possible.
    fn restore(&self, space: &AddressSpace, after: u64) -> bool {
        let site = after - self.trampoline.trap.len() as u64;
        if !self.is_ours(space, after) {
            return true;
        }
        let result = space.poke(site, &self.trampoline.trap);
        result
            .inspect_err(|errno| log::debug!("a site at {site:#x} stays patched: {errno}"))
            .is_ok()
    }

    /// What was mapped in `range` is gone: so are its sites. Those that somebody has patched there
    /// meanwhile stay.
    pub fn forget(&self, space: &AddressSpace, range: Range<u64>) {
        self.remove(space, range, |after| !self.is_ours(space, after));
    }

    /// What is mapped in `range` is about to move: its sites are as they were before.
    pub fn give_back(&self, space: &AddressSpace, range: Range<u64>) {
        self.remove(space, range, |after| self.restore(space, after));
    }

    fn remove(&self, space: &AddressSpace, range: Range<u64>, goes: impl Fn(u64) -> bool) {
        let length = self.trampoline.trap.len() as u64;
        let slots = self.trampoline.offsets.site_slots as u64;
        let mut patched = self.patched.lock();
        let ends = range.start.saturating_add(length)..range.end.saturating_add(length);
        let inside: Vec<u64> = patched.range(ends).copied().filter(|after| goes(*after)).collect();
        for after in inside {
            patched.remove(&after);
            if let Err(errno) = space.poke(self.table() + after % slots * 8, &[0; 8]) {
                log::debug!("the slot of a site at {after:#x} stays taken: {errno}");
            }
        }
    }
}
