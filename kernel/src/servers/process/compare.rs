//! `kcmp`: whether two threads share what they work with.

use abi::Errno;
use alloc::sync::Arc;
use core::cmp::Ordering;
use fs::epoll::Epoll;

use crate::call::{Call, SysResult};
use crate::process::access::Observer;
use crate::process::{Tid, table};

/// The open files of two descriptors.
const FILE: i32 = 0;
/// Address spaces.
const SPACE: i32 = 1;
/// Tables of files.
const FILES: i32 = 2;
/// Root, working directory and umask.
const DIRECTORY: i32 = 3;
/// Tables of signal actions.
const ACTIONS: i32 = 4;
/// Input and output priorities, which no two threads share.
const IO: i32 = 5;
/// Lists of undos of semaphores.
const UNDO: i32 = 6;
/// An open file, and one that an epoll instance watches.
const WATCHED: i32 = 7;

/// 0 when both are the same, else 1 or 2: an order that lasts as long as they do.
fn order<T: ?Sized>(first: &Arc<T>, second: &Arc<T>) -> u64 {
    let address = |it: &Arc<T>| Arc::as_ptr(it).cast::<()>();
    match address(first).cmp(&address(second)) {
        Ordering::Equal => 0,
        Ordering::Less => 1,
        Ordering::Greater => 2,
    }
}

/// `kcmp(first, second, kind, first index, second index)`
pub(super) async fn kcmp(call: &Call) -> SysResult {
    let find = |index| table::thread_or_init(Tid(call.int(index))).ok_or(Errno::ESRCH);
    let (first, second) = (find(0)?, find(1)?);
    for thread in [&first, &second] {
        if !Arc::ptr_eq(&thread.process, call.process()) {
            Observer::of_call(&call.thread).look_into(thread)?;
        }
    }
    let descriptor = |index| i32::try_from(call.argument(index)).map_err(|_| Errno::EBADF);
    Ok(match call.int(2) {
        FILE => {
            let one = first.file(descriptor(3)?)?;
            let other = second.file(descriptor(4)?)?;
            order(&one, &other)
        }
        SPACE => order(&first.space(), &second.space()),
        FILES => order(&first.files(), &second.files()),
        DIRECTORY => order(&first.directory(), &second.directory()),
        ACTIONS => order(&first.process.signals.actions(), &second.process.signals.actions()),
        IO => 0,
        UNDO => match (first.undo.present(), second.undo.present()) {
            (None, None) => 0,
            (None, Some(_)) => 1,
            (Some(_), None) => 2,
            (Some(one), Some(other)) => order(&one, &other),
        },
        WATCHED => {
            // `struct kcmp_epoll_slot`: instance, descriptor, files to skip.
            let slot: [u32; 3] = call.user().read_value(call.argument(4)).await?;
            let [instance, watched, skipped] = slot;
            let one = first.file(descriptor(3)?)?;
            let instance = second.file(instance.cast_signed())?;
            let other = Epoll::of(&instance)?.target(watched.cast_signed(), skipped as usize)?;
            order(&one, &other)
        }
        _ => return Err(Errno::EINVAL),
    })
}
