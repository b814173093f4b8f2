//! Tests of whole address spaces on the hosted machine: what one operation does to the others.

mod counts;
mod faults;
mod load;
mod operations;
mod parts;
mod pin;

use super::*;
use abi::Errno;
use abi::memory::{Advice, Protection};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::ops::Range;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

/// Runs a future that has nothing to wait for.
pub(super) fn finish<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here may wait"),
    }
}

const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);

fn space() -> Arc<AddressSpace> {
    AddressSpace::new(Layout::choose(None, 8 << 20), LimitValues::default()).unwrap()
}

fn map_pages(space: &AddressSpace, pages: u64, protection: Protection) -> u64 {
    space.map(MapRequest::anonymous(pages * PAGE, protection)).unwrap()
}

fn map_at(space: &AddressSpace, address: u64, pages: u64, protection: Protection) {
    let request = MapRequest {
        place: Place::Fixed(address),
        ..MapRequest::anonymous(pages * PAGE, protection)
    };
    assert_eq!(space.map(request), Ok(address));
}

fn shared_object(pages: u64) -> Arc<Object> {
    Arc::new(Object { source: SharedStore::new(pages * PAGE), name: b"/file".to_vec() })
}

fn map_object(space: &AddressSpace, object: &Arc<Object>, pages: u64, is_shared: bool) -> u64 {
    let mut request = MapRequest::anonymous(pages * PAGE, READ_WRITE);
    request.backing = Backing::Object { object: object.clone(), first_page: 0 };
    request.flags.set(AreaFlags::SHARED, is_shared);
    space.map(request).unwrap()
}

fn write(space: &Arc<AddressSpace>, address: u64, bytes: &[u8]) {
    finish(UserMemory::new(space.clone()).write_bytes(address, bytes)).unwrap();
}

fn read<const N: usize>(space: &Arc<AddressSpace>, address: u64) -> [u8; N] {
    let mut bytes = [0xee; N];
    finish(UserMemory::new(space.clone()).read_bytes(address, &mut bytes)).unwrap();
    bytes
}

/// All of a change in one go.
fn whole(from: u64, mut part: impl FnMut(u64) -> Option<u64>) {
    let mut at = Some(from);
    while let Some(from) = at {
        at = part(from);
    }
}

/// Changes in one go, for tests in which nobody else is there.
pub(crate) trait Whole {
    fn fork(&self) -> Result<Arc<AddressSpace>, Errno>;
    fn protect(&self, range: Range<u64>, to: Protection, grows_down: bool) -> Result<(), Errno>;
    fn remap(&self, request: RemapRequest) -> Result<u64, Errno>;
    fn set_locked(&self, range: Range<u64>, is_locked: bool, limit: u64) -> Result<(), Errno>;
    fn mark(&self, range: Range<u64>, advice: Advice) -> Result<(), Errno>;
}

impl Whole for Arc<AddressSpace> {
    fn fork(&self) -> Result<Arc<AddressSpace>, Errno> {
        let change = finish(self.begin_change());
        let copy = change.begin_copy()?;
        whole(0, |at| change.copy_part(&copy, at).unwrap());
        change.end_copy(&copy);
        Ok(copy)
    }

    fn protect(&self, range: Range<u64>, to: Protection, grows_down: bool) -> Result<(), Errno> {
        let mut change = finish(self.begin_change());
        let (part, result) = self.check_protect(range, to, grows_down)?;
        whole(part.start, |at| change.protect_part(at..part.end, to));
        result
    }

    fn remap(&self, request: RemapRequest) -> Result<u64, Errno> {
        let mut change = finish(self.begin_change());
        for range in self.check_remap(&request)? {
            whole(range.start, |at| change.unmap_part(at..range.end));
        }
        let (start, transfer) = change.remap(request)?;
        if let Some(transfer) = transfer {
            whole(transfer.old().start, |at| change.move_part(&transfer, at).unwrap());
            change.end_move(transfer);
        }
        Ok(start)
    }

    fn set_locked(&self, range: Range<u64>, is_locked: bool, limit: u64) -> Result<(), Errno> {
        let mut change = finish(self.begin_change());
        let result = self.check_locked(range.clone(), is_locked, limit)?;
        whole(range.start, |at| change.lock_part(at..range.end, is_locked));
        result
    }

    fn mark(&self, range: Range<u64>, advice: Advice) -> Result<(), Errno> {
        let mut change = finish(self.begin_change());
        if let Some(mark) = self.check_mark(range.clone(), advice)? {
            whole(range.start, |at| change.mark_part(at..range.end, mark));
        }
        Ok(())
    }
}

fn fault(space: &AddressSpace, address: u64, access: Access) -> Result<(), FaultSignal> {
    finish(space.fault(base::memory::VirtAddr(address), access))
}

fn shape(space: &AddressSpace) -> Vec<(u64, u64)> {
    let inner = space.lock();
    inner.areas.iter().map(|(start, area)| (start, (area.end - start) / PAGE)).collect()
}
