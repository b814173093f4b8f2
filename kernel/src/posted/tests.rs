//! The scanner against syspages of its own making.

use core::sync::atomic::AtomicU32;

use alloc::sync::Arc;
use alloc::vec::Vec;

use base::posted::{Producer, Served};
use base::task::block_on_host;
use policy::table::number;

use super::Syspage;
use super::calls::make;
use super::scanner::{BATCH, Message, Scanner};
use super::syspage::Origin;
use crate::process::testing::process;

fn syspage(id: u32) -> Arc<Syspage> {
    make(&process(), id, Origin::Trampoline { sites: 0, code: 0 }).unwrap()
}

/// A scanner that looks at these whatever core their threads are on.
fn scanner(syspages: &[&Arc<Syspage>]) -> Scanner {
    let mut scanner = Scanner::of_cores(Vec::new());
    for syspage in syspages {
        scanner.take(Message::Add((*syspage).clone()));
        scanner.take(Message::Look(syspage.id()));
    }
    scanner
}

struct User {
    syspage: Arc<Syspage>,
    producer: Producer,
}

impl User {
    /// Posts as much as there is room for, and takes all results; how many calls it posted.
    fn flood(&mut self) -> usize {
        let parts = self.syspage.parts();
        let head = AtomicU32::new(parts.control.head());
        for index in 0..64 {
            let _ = self.producer.take_result(&parts.entries, index);
        }
        let getpid = number::getpid as u16;
        let post = || self.producer.post(&parts.entries, &head, getpid, 0, [0; 6]);
        core::iter::from_fn(post).count()
    }
}

#[test]
fn a_thread_that_floods_does_not_starve_another() {
    let (flooder, modest) = (syspage(1), syspage(2));
    let mut scanner = scanner(&[&flooder, &modest]);
    let mut flooder = User { syspage: flooder, producer: Producer::new() };
    let mut modest = User { syspage: modest, producer: Producer::new() };
    for round in 0..50 {
        flooder.flood();
        let parts = modest.syspage.parts();
        let head = AtomicU32::new(parts.control.head());
        let getppid = number::getppid as u16;
        let index = modest.producer.post(&parts.entries, &head, getppid, 0, [0; 6]).unwrap();
        scanner.take(Message::Look(modest.syspage.id()));
        scanner.take(Message::Look(flooder.syspage.id()));
        let mut before = 0;
        let mut is_served = false;
        scanner.attend(&mut |syspage, _| {
            is_served |= syspage.id() == modest.syspage.id();
            before += usize::from(!is_served);
            Served::Done(7)
        });
        assert!(is_served && before <= BATCH, "round {round}: after {before} others");
        assert_eq!(modest.producer.take_result(&parts.entries, index), Some(7));
    }
}

#[test]
fn what_was_posted_and_not_begun_is_answered_when_the_syspage_goes() {
    let page = syspage(3);
    let mut scanner = scanner(&[&page]);
    let mut user = User { syspage: page.clone(), producer: Producer::new() };
    assert_eq!(user.flood(), 64);
    scanner.take(Message::Remove(page.clone()));
    assert!((0..64).all(|index| !page.parts().entries.is_submitted(index)));
    assert!(!scanner.has_work());
}

/// A program may write into the entries of its trampoline, so several answers may wait for one thread.
#[test]
fn every_answer_that_was_withheld_is_released() {
    let page = syspage(4);
    page.thread().process.request_group_exit(9);
    for index in [3, 5, 6] {
        page.begin(index);
        page.complete(index, Ok(index as u64));
    }
    assert!(page.release_withheld(5) && !page.release_withheld(5));
    assert_eq!(page.in_flight().bits(), 1 << 3 | 1 << 6);
    page.note_removed();
    block_on_host(page.drain());
    assert_eq!(page.in_flight().bits(), 0);
}

#[test]
fn a_number_that_the_scanner_does_not_know_is_ignored() {
    let mut scanner = scanner(&[]);
    scanner.take(Message::Look(1000));
    assert!(!scanner.attend(&mut |_, _| panic!("nothing was posted")));
}
