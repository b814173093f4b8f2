//! Instances over event counters: what is reported when, and what closing and nesting do.

use super::*;
use crate::eventfd::EventCounter;
use abi::epoll::EpollFlags;
use core::sync::atomic::AtomicUsize;
use core::task::Waker;
use std::task::Wake;

const IN: u32 = EpollFlags::IN.bits();
const EDGE: u32 = EpollFlags::EDGE.bits();
const ONESHOT: u32 = EpollFlags::ONESHOT.bits();

fn counter(value: u32) -> Arc<OpenFile> {
    EventCounter::open(value, false, OpenFlags::NONBLOCK).unwrap()
}

fn add_to(file: &OpenFile, value: u64) {
    let count = file.write(&mut &value.to_ne_bytes()[..], crate::file::Transfer::PLAIN);
    assert_eq!(count, Ok(8));
}

fn take_from(file: &OpenFile) {
    let mut bytes = [0; 8];
    assert_eq!(file.read(&mut &mut bytes[..], crate::file::Transfer::PLAIN), Ok(8));
}

fn watch(instance: &OpenFile, file: &Arc<OpenFile>, descriptor: i32, events: u32) {
    let event = EpollEvent::new(events, descriptor.unsigned_abs().into());
    Epoll::of(instance).unwrap().add(&NoCaller, file, descriptor, event).unwrap();
}

/// The numbers of what is reported.
fn reported(instance: &OpenFile, most: usize) -> Vec<u64> {
    let epoll = Epoll::of(instance).unwrap();
    let found = epoll.collect(&mut epoll.round(), &NoCaller, most);
    found.iter().map(|delivery| delivery.event.data()).collect()
}

#[test]
fn a_level_is_reported_until_it_is_gone_and_takes_turns() {
    let instance = Epoll::open().unwrap();
    let files = [counter(1), counter(0), counter(1)];
    for (file, descriptor) in files.iter().zip(1..) {
        watch(&instance, file, descriptor, IN);
    }
    assert_eq!(reported(&instance, 8), [1, 3]);
    add_to(&files[1], 1);
    assert_eq!(reported(&instance, 2), [1, 3]);
    assert_eq!(reported(&instance, 2), [2, 1]);
    take_from(&files[0]);
    assert_eq!(reported(&instance, 8), [3, 2]);
}

#[test]
fn an_edge_is_reported_once_for_each_change() {
    let instance = Epoll::open().unwrap();
    let file = counter(1);
    watch(&instance, &file, 1, IN | EDGE);
    assert_eq!(reported(&instance, 8), [1]);
    assert_eq!(reported(&instance, 8), []);
    add_to(&file, 1);
    add_to(&file, 1);
    assert_eq!(reported(&instance, 8), [1]);
    assert_eq!(reported(&instance, 8), []);
}

#[test]
fn a_one_shot_interest_fires_once_until_it_is_modified() {
    let instance = Epoll::open().unwrap();
    let epoll = Epoll::of(&instance).unwrap();
    let file = counter(1);
    watch(&instance, &file, 1, IN | ONESHOT);
    let first = epoll.collect(&mut epoll.round(), &NoCaller, 8);
    assert_eq!(first.len(), 1);
    add_to(&file, 1);
    assert_eq!(reported(&instance, 8), []);
    // What could not be given to the program fires again.
    epoll.give_back(&first);
    assert_eq!(reported(&instance, 8), [1]);
    epoll.modify(&NoCaller, &file, 1, EpollEvent::new(IN | ONESHOT, 7)).unwrap();
    assert_eq!(reported(&instance, 8), [7]);
}

#[test]
fn a_closed_file_takes_its_interests_with_it() {
    let instance = Epoll::open().unwrap();
    let file = counter(1);
    watch(&instance, &file, 1, IN);
    watch(&instance, &file, 2, IN);
    assert_eq!(reported(&instance, 8), [1, 2]);
    drop(file);
    assert_eq!(reported(&instance, 8), []);
    assert!(Epoll::of(&instance).unwrap().state.lock().interests.is_empty());
}

#[test]
fn a_closed_instance_leaves_the_queues_and_lists_of_its_files() {
    let instance = Epoll::open().unwrap();
    let file = counter(0);
    watch(&instance, &file, 1, IN);
    assert!(!file.watches().is_empty());
    drop(instance);
    assert!(file.watches().is_empty());
    add_to(&file, 1);
}

#[test]
fn circles_and_deep_chains_are_refused() {
    let chain: Vec<Arc<OpenFile>> = (0..8).map(|_| Epoll::open().unwrap()).collect();
    let file = counter(0);
    watch(&chain[0], &file, 1, IN);
    let add = |outer: usize, inner: usize| {
        let event = EpollEvent::new(IN, 0);
        Epoll::of(&chain[outer]).unwrap().add(&NoCaller, &chain[inner], 9, event)
    };
    for outer in 1..5 {
        assert_eq!(add(outer, outer - 1), Ok(()));
    }
    assert_eq!(add(5, 4), Err(Errno::ELOOP));
    assert_eq!(add(0, 4), Err(Errno::ELOOP));
    assert_eq!(add(1, 0), Err(Errno::EEXIST));
    assert_eq!(reported(&chain[4], 8), []);
    add_to(&file, 1);
    assert_eq!(reported(&chain[4], 8).len(), 1);
    take_from(&file);
    assert_eq!(reported(&chain[4], 8), []);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn one_of_several_waiters_is_woken_and_what_is_not_wanted_wakes_nobody() {
    use base::wait::{Kind, Target};
    let instance = Epoll::open().unwrap();
    let epoll = Epoll::of(&instance).unwrap();
    let file = counter(0);
    watch(&instance, &file, 1, IN);
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let place = || {
        let waker = Waker::from(count.clone());
        epoll.changed().watch(Kind::Taker, PollEvents::IN, Target::Waker(waker))
    };
    let mut places = [place(), place()];
    add_to(&file, 1);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    // Room to write is not asked for.
    take_from(&file);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    places.iter_mut().for_each(base::wait::Registration::settle);
}

#[test]
fn an_edge_triggered_outer_instance_learns_of_each_event_after_it_has_looked() {
    let (inner, outer) = (Epoll::open().unwrap(), Epoll::open().unwrap());
    let file = counter(0);
    watch(&inner, &file, 1, IN);
    watch(&outer, &inner, 2, IN | EDGE);
    add_to(&file, 1);
    assert_eq!(reported(&outer, 8), [2]);
    assert_eq!(reported(&outer, 8), []);
    add_to(&file, 1);
    assert_eq!(reported(&outer, 8), [2]);
}
