//! Locks.

use loom::sync::Arc;
use loom::thread;

use super::bounded;
use crate::sync::{Mutex, Once, rank};

#[test]
fn loom_a_mutex_excludes() {
    bounded(3, || {
        let mutex = Arc::new(Mutex::new(&rank::PIPE, 0));
        let other = mutex.clone();
        let thread = thread::spawn(move || {
            *other.lock() += 1;
            *other.lock() += 1;
        });
        *mutex.lock() += 1;
        *mutex.lock() += 1;
        thread.join().unwrap();
        assert_eq!(*mutex.lock(), 4);
    });
}

#[test]
fn loom_a_lock_that_was_tried_excludes_too() {
    bounded(3, || {
        let mutex = Arc::new(Mutex::new(&rank::PIPE, 0));
        let other = mutex.clone();
        let thread = thread::spawn(move || *other.lock() += 1);
        let tried = mutex.try_lock().map(|mut value| *value += 1).is_some();
        thread.join().unwrap();
        assert_eq!(*mutex.lock(), 1 + i32::from(tried));
    });
}

#[test]
fn loom_once_makes_one_value() {
    bounded(3, || {
        let cell = Arc::new(Once::new());
        let other = cell.clone();
        let thread = thread::spawn(move || *other.call_once(|| 1));
        let mine = *cell.call_once(|| 2);
        assert_eq!(thread.join().unwrap(), mine);
        assert_eq!(cell.get(), Some(&mine));
    });
}
