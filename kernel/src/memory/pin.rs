//! Pages that the kernel shares with a program: private pages that it pins, and pages of its own that
//! it maps.
//!
//! A pinned page stays the same frame for as long as it is mapped: it is not copied on write, and a
//! child gets a copy at once. When the program unmaps it, the kernel's handle keeps the frame.

use abi::Errno;
use abi::memory::Protection;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::memory::{Frame, PhysAddr, VirtAddr, reserve};
use base::user;
use core::ops::Range;

use super::area::{Area, AreaFlags, Backing, Object};
use super::fault::Access;
use super::layout::{PAGE, is_user_range, page_floor};
use super::source::{PageSource, new_identity};
use super::space::{AddressSpace, Inner, anonymous_area, rights_of};

/// A page of the kernel's that a program gets to see.
pub struct SharedPage {
    /// Its frame.
    pub frame: Frame,
    /// What the program may do with it.
    pub protection: Protection,
    /// Further properties of its area; `SPECIAL` in any case.
    pub flags: AreaFlags,
}

/// Where pages of the kernel go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedPlace {
    /// At this address or not at all.
    At(u64),
    /// At this address if it is free, else where there is room; 0 says nothing.
    Near(u64),
}

/// One frame as the source of an area.
struct OnePage {
    frame: Frame,
    identity: u64,
}

impl PageSource for OnePage {
    fn size(&self) -> u64 {
        PAGE
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        if index == 0 { Ok(self.frame.clone()) } else { Err(Errno::EFAULT) }
    }

    fn identity(&self) -> u64 {
        self.identity
    }
}

/// A page that the kernel shares with the program. The program may throw the page away and have another
/// one, or the zero page of all programs, at the same address: only this frame is special.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) page: u64,
    frame: PhysAddr,
}

impl Inner {
    /// The pages of `range` have moved to `target`, and their frames with them.
    pub(super) fn move_pinned(&mut self, range: Range<u64>, target: u64) {
        for pinned in self.pinned.iter_mut().filter(|pinned| range.contains(&pinned.page)) {
            pinned.page = pinned.page - range.start + target;
        }
    }

    /// Whether the page has a frame that is pinned there.
    pub(super) fn is_pinned(&self, page: u64, frame: PhysAddr) -> bool {
        self.pinned.contains(&Pinned { page, frame })
    }
}

impl AddressSpace {
    /// Pins the page at an aligned address and returns its frame.
    ///
    /// # Errors
    /// `EFAULT` when nothing is mapped there, `EACCES` when it is not private anonymous memory that may
    /// be read and written, `EBUSY` when it is pinned, `ENOMEM`.
    pub fn pin(&self, page: u64) -> Result<Frame, Errno> {
        {
            let inner = self.lock();
            let found =
                inner.areas.find(page).filter(|(_, area)| !area.flags.contains(AreaFlags::HIDDEN));
            let (_, area) = found.ok_or(Errno::EFAULT)?;
            let wanted = Protection::READ | Protection::WRITE;
            let is_anonymous = matches!(area.backing, Backing::Anonymous);
            if !is_anonymous || !area.is_private() || !area.protection.contains(wanted) {
                return Err(Errno::EACCES);
            }
            let frame = inner.table.peek(VirtAddr(page)).map(|state| state.frame);
            if frame.is_some_and(|frame| inner.is_pinned(page, frame)) {
                return Err(Errno::EBUSY);
            }
        }
        self.fault_now(page, Access { write: true, execute: false })
            .map_err(|error| error.errno(Errno::ENOMEM))?;
        let mut inner = self.lock();
        // Another thread may have changed everything meanwhile.
        let mapping = inner.table.lookup(VirtAddr(page)).ok_or(Errno::EFAULT)?;
        let frame = mapping.frame.address();
        if !mapping.rights.write || inner.is_pinned(page, frame) {
            return Err(Errno::EBUSY);
        }
        inner.pinned.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        inner.pinned.push(Pinned { page, frame });
        Ok(mapping.frame)
    }

    /// Lets the page with this frame be like others again, wherever the program has moved it.
    pub fn unpin(&self, frame: &Frame) {
        let address = frame.address();
        self.lock().pinned.retain(|other| other.frame != address);
    }

    /// Takes pages of the kernel's out of `range`, which `map_shared` has put there: those that still
    /// show one of `frames`, one after the other.
    pub fn unmap_shared(&self, range: Range<u64>, frames: &[&Frame]) {
        let mut inner = self.lock();
        for (page, frame) in range.step_by(PAGE as usize).zip(frames) {
            let is_special = inner
                .areas
                .find(page)
                .is_some_and(|(_, area)| area.flags.contains(AreaFlags::SPECIAL));
            let shown = inner.table.peek(VirtAddr(page)).map(|state| state.frame);
            if is_special && shown == Some(frame.address()) {
                inner.remove_areas(page..page + PAGE);
            }
        }
    }

    /// Maps pages of the kernel one after the other and returns where.
    ///
    /// # Errors
    /// `ENOMEM`; `EEXIST` when `place` is taken.
    pub fn map_shared(
        &self,
        place: SharedPlace,
        name: &[u8],
        pages: Vec<SharedPage>,
    ) -> Result<u64, Errno> {
        let length = pages.len() as u64 * PAGE;
        let mut inner = self.lock();
        let start = match place {
            SharedPlace::At(start) if inner.areas.is_free(start..start + length) => start,
            SharedPlace::At(_) => return Err(Errno::EEXIST),
            SharedPlace::Near(hint) => {
                inner.find_room_at_rest(hint, length).ok_or(Errno::ENOMEM)?
            }
        };
        for (place, page) in (start..).step_by(PAGE as usize).zip(pages) {
            let source = Arc::new(OnePage { frame: page.frame.clone(), identity: new_identity() });
            let area = Area {
                allowed: page.protection,
                flags: AreaFlags::SPECIAL | page.flags,
                backing: Backing::Object {
                    object: Arc::new(Object { source, name: name.to_vec() }),
                    first_page: 0,
                },
                ..anonymous_area(place + PAGE, page.protection)
            };
            let is_shared = !area.is_private();
            let rights = rights_of(&area, is_shared);
            inner.add_area(place, area);
            inner.put_page(place, page.frame, rights, is_shared)?;
        }
        Ok(start)
    }
}

impl AddressSpace {
    /// Reads what is there at once, whatever the program may do with it; how many bytes.
    pub fn read_now(&self, address: u64, into: &mut [u8]) -> usize {
        if user::read_loaded(self.handle(), VirtAddr(address), into) {
            return into.len();
        }
        self.lock().table.copy_out(VirtAddr(address), into)
    }

    /// Writes within one page, if the program may and the page is there; else nothing.
    pub fn put_now(&self, address: u64, from: &[u8]) -> bool {
        let length = from.len() as u64;
        length <= PAGE - address % PAGE && self.put_all_now(address, from)
    }

    /// Fills `into`, if all of it is there and the program may read it; else what `into` has is undefined.
    #[must_use]
    pub fn get_now(&self, address: u64, into: &mut [u8]) -> bool {
        is_user_range(address, into.len() as u64) && self.read_now(address, into) == into.len()
    }

    /// Whether all pages of a range are there and the program may use them in this way.
    pub fn is_there(&self, address: u64, length: u64, write: bool) -> bool {
        is_user_range(address, length)
            && usize::try_from(length).is_ok_and(|length| {
                self.lock().table.reaches(VirtAddr(address), length, write) == length
            })
    }

    /// Writes all bytes, if the program may and their pages are there; else perhaps a part of them.
    #[must_use]
    pub fn put_all_now(&self, address: u64, from: &[u8]) -> bool {
        let place = VirtAddr(address);
        user::write_loaded(self.handle(), place, from)
            || is_user_range(address, from.len() as u64)
                && self.lock().table.copy_in(place, from) == from.len()
    }

    /// As `put_all_now`, several pieces.
    #[must_use]
    pub fn put_pieces_now(&self, pieces: &[(VirtAddr, &[u8])]) -> bool {
        user::write_loaded_pieces(self.handle(), pieces)
            || pieces.iter().all(|(address, from)| self.put_all_now(address.0, from))
    }

    /// As `get_now`, several pieces.
    #[must_use]
    pub fn get_pieces_now(&self, pieces: &mut [(VirtAddr, &mut [u8])]) -> bool {
        user::read_loaded_pieces(self.handle(), pieces)
            || pieces.iter_mut().all(|(address, into)| self.get_now(address.0, into))
    }

    /// The aligned 64-bit word at an address, if it is there at once.
    pub fn word_now(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read_now(address, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }

    /// Whether code at `address` is private to the program and cannot be written by it.
    pub fn is_private_code(&self, address: u64) -> bool {
        self.lock().areas.find(address).is_some_and(|(_, area)| {
            area.is_private()
                && area.protection.contains(Protection::EXECUTE)
                && !area.protection.contains(Protection::WRITE)
                && !area.flags.contains(AreaFlags::SPECIAL)
        })
    }

    /// Changes bytes within one page of private memory, whatever the program may do with it: the page
    /// is replaced by a changed copy, so that a core that runs in it sees either all or nothing.
    ///
    /// # Errors
    /// `EFAULT` when the page is not there or not private, `ENOMEM`.
    pub fn poke(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let page = page_floor(address);
        let mut inner = self.lock();
        let Some((_, area)) = inner.areas.find(page).filter(|(_, area)| area.is_private()) else {
            return Err(Errno::EFAULT);
        };
        let rights = rights_of(area, true);
        let mapping = inner.table.lookup(VirtAddr(page)).ok_or(Errno::EFAULT)?;
        let copy = reserve::copy(&mapping.frame)?;
        drop(mapping);
        copy.write((address - page) as usize, bytes);
        inner.put_page(page, copy, rights, false)
    }
}

/// At fork, after the pages of `range` were shared and before the parent's lock is released: the child
/// gets copies of pinned pages, and the parent keeps the right to write to its own.
pub(super) fn copy_pinned(
    parent: &mut Inner,
    child: &mut Inner,
    range: Range<u64>,
) -> Result<(), Errno> {
    for index in 0..parent.pinned.len() {
        let Some(&Pinned { page, frame }) = parent.pinned.get(index) else { break };
        if !range.contains(&page) {
            continue;
        }
        let Some((_, area)) = parent.areas.find(page) else { continue };
        let rights = rights_of(area, true);
        let Some(mapping) = parent.table.lookup(VirtAddr(page)) else { continue };
        if mapping.frame.address() != frame {
            continue;
        }
        if child.table.peek(VirtAddr(page)).is_some() {
            let copy = reserve::copy(&mapping.frame)?;
            drop(child.table.map(VirtAddr(page), copy, rights)?);
        }
        parent.table.set_rights(VirtAddr(page), rights);
    }
    Ok(())
}
