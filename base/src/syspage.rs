//! The frames behind a syspage, as the kernel uses them: pinned pages of RAM that a user maps too.

use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::syspage::{ControlPage, ENTRY_COUNT, NotificationPage, VERSION};

use crate::memory::Frame;
use crate::posted::Entries;

/// The page of entries. Keeps its frame, so that the user may unmap it without harm to the kernel.
pub struct EntriesPage(Frame);

impl EntriesPage {
    /// The frame becomes a page of free entries.
    pub fn new(frame: Frame) -> EntriesPage {
        frame.zero(0, hal::PAGE_SIZE);
        EntriesPage(frame)
    }

    /// The frame.
    pub fn frame(&self) -> &Frame {
        &self.0
    }
}

impl Deref for EntriesPage {
    type Target = Entries;

    #[inline]
    fn deref(&self) -> &Entries {
        // SAFETY: a page of RAM that lives as long as the frame, aligned, and as large as `Entries`,
        // which consists of atomics: any bytes are valid and may change at any time.
        unsafe { &*self.0.pointer().cast::<Entries>() }
    }
}

macro_rules! word {
    ($page:ident, $type:ty, $structure:ident . $field:ident) => {{
        const OFFSET: usize = core::mem::offset_of!($structure, $field);
        // SAFETY: an aligned word within the page, which lives as long as the frame and is accessed
        // atomically only.
        unsafe { <$type>::from_ptr($page.0.pointer().add(OFFSET).cast()) }
    }};
}

/// The control page. Only the kernel writes to it.
pub struct ControlFrame(Frame);

impl ControlFrame {
    /// Fills a frame in. Parked, until the scanner has seen the syspage.
    pub fn new(
        frame: Frame,
        features: u32,
        syspage_limit: u32,
        spin_limit: u32,
        permitted: &[u64; 8],
    ) -> ControlFrame {
        let page = ControlFrame(frame);
        word!(page, AtomicU32, ControlPage.version).store(VERSION, Ordering::Relaxed);
        word!(page, AtomicU32, ControlPage.features).store(features, Ordering::Relaxed);
        let count = ENTRY_COUNT as u32;
        word!(page, AtomicU32, ControlPage.entry_count).store(count, Ordering::Relaxed);
        word!(page, AtomicU32, ControlPage.syspage_limit).store(syspage_limit, Ordering::Relaxed);
        word!(page, AtomicU32, ControlPage.spin_limit).store(spin_limit, Ordering::Relaxed);
        let start = core::mem::offset_of!(ControlPage, permitted);
        for (index, word) in permitted.iter().enumerate() {
            page.0.write(start + index * 8, &word.to_le_bytes());
        }
        page.set_parked(true);
        page
    }

    /// Says where the user has the entries, and what its trampoline needs.
    pub fn set_addresses(&self, entries: u64, sites: u64, trampoline: u64) {
        word!(self, AtomicU64, ControlPage.entries).store(entries, Ordering::Relaxed);
        word!(self, AtomicU64, ControlPage.sites).store(sites, Ordering::Relaxed);
        word!(self, AtomicU64, ControlPage.trampoline).store(trampoline, Ordering::Relaxed);
    }

    /// Whether users are told that nobody looks.
    #[inline]
    pub fn is_parked(&self) -> bool {
        word!(self, AtomicU32, ControlPage.parked).load(Ordering::Relaxed) != 0
    }

    /// Tells users whether anybody looks. A full fence must follow `true` before the last look.
    #[inline]
    pub fn set_parked(&self, parked: bool) {
        word!(self, AtomicU32, ControlPage.parked).store(u32::from(parked), Ordering::Relaxed);
    }

    /// Publishes how far the kernel has come.
    #[inline]
    pub fn set_head(&self, head: u32) {
        word!(self, AtomicU32, ControlPage.head).store(head, Ordering::Release);
    }

    /// How far the kernel has come.
    #[inline]
    pub fn head(&self) -> u32 {
        word!(self, AtomicU32, ControlPage.head).load(Ordering::Acquire)
    }

    /// The frame, to be mapped without the right to write.
    pub fn frame(&self) -> &Frame {
        &self.0
    }
}

/// The notification page.
pub struct NotificationFrame(Frame);

impl NotificationFrame {
    /// Nothing is pending and nothing wanted.
    pub fn new(frame: Frame) -> NotificationFrame {
        frame.zero(0, hal::PAGE_SIZE);
        NotificationFrame(frame)
    }

    /// Sets bits that became true, as far as the user wants them.
    #[inline]
    pub fn notify(&self, bits: u64) {
        let armed = word!(self, AtomicU64, NotificationPage.armed).load(Ordering::Relaxed) & bits;
        if armed != 0 {
            let pending = word!(self, AtomicU64, NotificationPage.pending);
            pending.fetch_or(armed, Ordering::Release);
        }
    }

    /// How many calls the trampoline has posted.
    pub fn position(&self) -> u32 {
        word!(self, AtomicU32, NotificationPage.position).load(Ordering::Relaxed)
    }

    /// Counts a call that the kernel finished for the trampoline.
    pub fn advance(&self) {
        word!(self, AtomicU32, NotificationPage.position).fetch_add(1, Ordering::Relaxed);
    }

    /// The frame, to be mapped readable and writable.
    pub fn frame(&self) -> &Frame {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::syspage::notification::COMPLETED;

    #[test]
    fn a_used_frame_becomes_free_entries() {
        let frame = Frame::zeroed().unwrap();
        frame.write(0, &[0xff; 4096]);
        let page = EntriesPage::new(frame.clone());
        assert!((0..ENTRY_COUNT).all(|index| !page.is_submitted(index) && !page.is_done(index)));
        page.complete(3, 77);
        assert_eq!(frame.load_u32(3 * 64), abi::syspage::status::DONE);
        assert_eq!(frame.load_u64(3 * 64 + 56), 77);
    }

    #[test]
    fn the_control_page_is_as_the_contract_says() {
        let mut permitted = [0; 8];
        permitted[1] = 5;
        let page = ControlFrame::new(Frame::zeroed().unwrap(), 1, 16, 1000, &permitted);
        assert!(page.is_parked());
        page.set_head(9);
        let words: [u32; 6] = core::array::from_fn(|index| page.frame().load_u32(index * 4));
        assert_eq!(words, [VERSION, 1, 1, 64, 16, 1000]);
        assert_eq!((page.frame().load_u64(72), page.frame().load_u32(128)), (5, 9));
    }

    #[test]
    fn only_what_is_wanted_is_notified() {
        let page = NotificationFrame::new(Frame::zeroed().unwrap());
        page.notify(COMPLETED);
        assert_eq!(page.frame().load_u64(0), 0);
        page.frame().store_u64(8, COMPLETED);
        page.notify(COMPLETED);
        assert_eq!(page.frame().load_u64(0), COMPLETED);
    }
}
