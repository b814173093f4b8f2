//! Tests of whole address spaces on the hosted machine: what one operation does to the others.

mod faults;
mod load;
mod operations;
mod pin;

use super::*;
use abi::memory::Protection;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

/// Runs a future that has nothing to wait for.
fn finish<F: Future>(future: F) -> F::Output {
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

fn fault(space: &AddressSpace, address: u64, access: Access) -> Result<(), FaultSignal> {
    finish(space.fault(base::memory::VirtAddr(address), access))
}

fn shape(space: &AddressSpace) -> Vec<(u64, u64)> {
    let inner = space.lock();
    inner.areas.iter().map(|(start, area)| (start, (area.end - start) / PAGE)).collect()
}
