//! Areas that are counted: attachments of shared-memory segments.
//!
//! A segment goes when it was removed and no area shows it any more. An area holds an `Attachment`, which
//! tells the segment when the area is copied (by `fork`, by being split) and when it goes, with the
//! process on whose behalf. That happens while the space is locked, so locks of segments come after those
//! of spaces.

use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, Ordering};

use super::area::{Area, Backing, Object};
use super::layout::{PAGE, page_ceil};
use super::space::AddressSpace;

/// Something that counts the areas that show it.
pub trait Attach: Send + Sync {
    /// One more area; `process` made it.
    fn attach(&self, process: i32);
    /// One fewer.
    fn detach(&self, process: i32);
}

/// The process of an address space, as far as attachments care.
#[derive(Clone, Default)]
pub struct Owner(Arc<AtomicI32>);

impl Owner {
    fn process(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts for one area.
pub struct Attachment {
    target: Arc<dyn Attach>,
    owner: Owner,
}

impl Attachment {
    /// Counts one more area of `target` in a space of `owner`.
    pub fn new(target: Arc<dyn Attach>, owner: &Owner) -> Attachment {
        target.attach(owner.process());
        Attachment { target, owner: owner.clone() }
    }

    /// The area is in another space.
    pub(super) fn move_to(&mut self, owner: &Owner) {
        self.owner = owner.clone();
    }
}

impl Clone for Attachment {
    fn clone(&self) -> Attachment {
        Attachment::new(self.target.clone(), &self.owner)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.target.detach(self.owner.process());
    }
}

impl AddressSpace {
    /// Says which process the space belongs to.
    pub fn set_owner(&self, process: i32) {
        self.lock().owner.0.store(process, Ordering::Relaxed);
    }

    /// Which process the space belongs to.
    pub fn owner(&self) -> Owner {
        self.lock().owner.clone()
    }

    /// Unmaps what is left of the segment that was attached at `address` (`shmdt`).
    ///
    /// # Errors
    /// `EINVAL` when nothing was.
    pub fn detach(&self, address: u64) -> Result<(), Errno> {
        let mut inner = self.lock();
        let mut found: Option<(Arc<Object>, u64)> = None;
        let mut parts: Vec<Range<u64>> = Vec::new();
        for (start, area) in inner.areas.overlapping(address..super::layout::USER_END) {
            if let Some((_, end)) = &found
                && start >= *end
            {
                break;
            }
            let Some(object) = attached_at(address, start, area) else { continue };
            match &found {
                Some((first, _)) if !Arc::ptr_eq(first, object) => continue,
                Some(_) => {}
                None => {
                    let size = page_ceil(object.source.size()).ok_or(Errno::EINVAL)?;
                    found = Some((object.clone(), address.saturating_add(size)));
                }
            }
            parts.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            parts.push(start..area.end);
        }
        if parts.is_empty() {
            return Err(Errno::EINVAL);
        }
        for part in parts {
            inner.remove_areas(part);
        }
        Ok(())
    }
}

/// The segment of an area that shows it as if it had been attached at `address`.
fn attached_at(address: u64, start: u64, area: &Area) -> Option<&Arc<Object>> {
    let Backing::Object { object, first_page } = &area.backing else { return None };
    let is_there = start.checked_sub(address) == first_page.checked_mul(PAGE);
    (area.attachment.is_some() && is_there).then_some(object)
}
