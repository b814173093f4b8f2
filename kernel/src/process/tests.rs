//! Families, groups, waiting and ending, with threads that run no program.

extern crate std;

use abi::Errno;
use abi::process::*;
use abi::signal::{Action, SIG_IGN, Signal};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::task::block_on_host;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use self::std::thread;
use super::testing::{child, end, process};
use super::wait::{Found, WaitRequest, Which, wait};
use super::{INIT, Pid, Thread, session, table};
use crate::call::Caller;
use crate::signal::interruptible;

/// A thread that has looked at its signals and found none.
fn settled(thread: Arc<Thread>) -> Arc<Thread> {
    let mut never = pin!(interruptible(&*thread, core::future::pending::<()>()));
    let poll = never.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending());
    thread.clone()
}

fn look(thread: &Arc<Thread>, which: Which, options: i32) -> Result<Option<Found>, Errno> {
    let request = WaitRequest { which, options: options | WEXITED | WNOHANG };
    let caller = Caller::Trapped { thread: thread.clone(), number: 0 };
    match pin!(wait(&caller, request)).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a wait with WNOHANG waits"),
    }
}

#[test]
fn a_child_is_found_once_with_its_status() {
    let parent = settled(process());
    let action = Action { handler: 0x1000, ..Action::default() };
    parent.process.signals.actions().set(Signal::SIGCHLD, action).unwrap();
    assert_eq!(look(&parent, Which::Any, 0), Err(Errno::ECHILD));
    let child = child(&parent, 0);
    let pid = child.process.pid;
    assert_eq!(look(&parent, Which::Any, 0), Ok(None));
    end(child, 7);
    assert!(parent.process.signals.pending().contains(Signal::SIGCHLD));
    let seen = look(&parent, Which::Process(pid), WNOWAIT).unwrap().unwrap();
    assert_eq!((seen.pid, seen.status, seen.value), (pid, 7 << 8, 7));
    assert!(look(&parent, Which::Any, 0).unwrap().is_some());
    assert_eq!(look(&parent, Which::Any, 0), Err(Errno::ECHILD));
    assert!(table::process(pid).is_none());
}

#[test]
fn a_parent_that_ignores_its_children_gets_no_zombies() {
    let parent = settled(process());
    let action = Action { handler: SIG_IGN, ..Action::default() };
    parent.process.signals.actions().set(Signal::SIGCHLD, action).unwrap();
    let child = child(&parent, 0);
    let pid = child.process.pid;
    end(child, 0);
    assert!(table::process(pid).is_none());
    assert_eq!(look(&parent, Which::Any, 0), Err(Errno::ECHILD));
}

#[test]
fn orphans_go_to_the_nearest_subreaper() {
    let top = settled(process());
    top.process.is_subreaper.store(true, core::sync::atomic::Ordering::Relaxed);
    let middle = settled(child(&top, 0));
    let bottom = child(&middle, 0);
    let pid = bottom.process.pid;
    end(middle, 0);
    assert_eq!(bottom.process.parent_pid(), top.process.pid);
    end(bottom, 3);
    assert_eq!(look(&top, Which::Process(pid), 0).unwrap().unwrap().value, 3);
}

#[test]
fn orphans_without_a_subreaper_are_reaped_by_the_first_process() {
    let parent = settled(process());
    let child = child(&parent, 0);
    let pid = child.process.pid;
    end(parent, 0);
    assert_eq!(child.process.parent_pid(), INIT);
    end(child, 0);
    assert!(table::process(pid).is_none());
}

#[test]
fn a_process_ends_with_its_last_thread_and_its_leaders_status() {
    let parent = settled(process());
    let leader = settled(child(&parent, 0));
    let pid = leader.process.pid;
    let other = child(&leader, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM);
    end(leader, 5);
    assert_eq!(look(&parent, Which::Any, 0), Ok(None));
    end(other, 9);
    assert_eq!(look(&parent, Which::Process(pid), 0).unwrap().unwrap().value, 5);
}

#[test]
fn a_thread_is_refused_when_its_process_ends() {
    let parent = settled(process());
    parent.process.request_group_exit(9);
    let number = table::lock().reserve_number(0, u64::MAX).unwrap();
    let tid = super::Tid(number.get());
    let request = super::fork::CloneRequest {
        flags: CLONE_THREAD | CLONE_SIGHAND | CLONE_VM,
        ..Default::default()
    };
    let thread = super::fork::make_thread(&parent, tid, &request, None, None, None).unwrap();
    let result = super::fork::publish(&parent, &thread, number, &request);
    assert_eq!(result, Err(Errno::ERESTARTNOINTR));
    assert!(table::thread(tid).is_none());
}

#[test]
fn groups_and_sessions_follow_the_rules() {
    let leader = settled(process());
    let own = leader.process.clone();
    assert_eq!(session::start_session(&own), Err(Errno::EPERM));
    let child = settled(child(&leader, 0));
    let pid = child.process.pid;
    assert_eq!(child.process.group(), own.pid);
    assert_eq!(session::set_group(&own, pid, Pid(0)), Ok(()));
    assert_eq!(child.process.group(), pid);
    assert_eq!(session::set_group(&own, pid, own.pid), Ok(()));
    assert_eq!(session::set_group(&own, pid, Pid(31_999)), Err(Errno::EPERM));
    assert_eq!(session::set_group(&own, Pid(-1), Pid(0)), Err(Errno::ESRCH));
    assert_eq!(session::start_session(&child.process), Ok(pid));
    assert_eq!(session::set_group(&own, pid, own.pid), Err(Errno::EPERM));
    assert!(table::is_orphaned(pid));
}

#[test]
fn a_number_lives_as_long_as_anything_has_it() {
    let leader = settled(process());
    let founder = settled(child(&leader, 0));
    let group = founder.process.pid;
    session::set_group(&leader.process, group, group).unwrap();
    let member = settled(child(&founder, 0));
    end(founder, 0);
    look(&leader, Which::Any, 0).unwrap().unwrap();
    assert!(table::process(group).is_none());
    assert_eq!(table::group_members(group).len(), 1);
    end(member, 0);
    assert!(table::group_members(group).is_empty());
}

#[test]
fn every_child_is_reaped_exactly_once_by_threads_that_wait_together() {
    const CHILDREN: usize = 40;
    let parent = settled(process());
    let other = settled(child(&parent, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM));
    let children: Vec<Arc<Thread>> = (0..CHILDREN).map(|_| child(&parent, 0)).collect();
    let waiters = [parent.clone(), other.clone()].map(|thread| {
        thread::spawn(move || {
            let mut found = Vec::new();
            let request = WaitRequest { which: Which::Any, options: WEXITED };
            loop {
                match block_on_host(wait(
                    &Caller::Trapped { thread: thread.clone(), number: 0 },
                    request,
                )) {
                    Ok(Some(child)) => found.push(child.pid),
                    Err(Errno::ERESTARTSYS) => {}
                    Err(Errno::ECHILD) => return found,
                    other => panic!("{other:?}"),
                }
            }
        })
    });
    let ender = thread::spawn(move || {
        for child in children {
            end(child, 0);
        }
    });
    ender.join().unwrap();
    let mut found: Vec<Pid> = waiters.into_iter().flat_map(|w| w.join().unwrap()).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), CHILDREN);
}

#[test]
fn children_that_end_while_their_parent_ends_leave_nothing_behind() {
    for _ in 0..50 {
        let parent = settled(process());
        let pid = parent.process.pid;
        let children: Vec<Arc<Thread>> = (0..4).map(|_| child(&parent, 0)).collect();
        let pids: Vec<Pid> = children.iter().map(|child| child.process.pid).collect();
        let ender = thread::spawn(move || {
            for child in children {
                end(child, 0);
            }
        });
        end(parent, 0);
        ender.join().unwrap();
        assert!(table::process(pid).is_none());
        assert!(pids.iter().all(|pid| table::process(*pid).is_none()));
    }
}

#[test]
fn who_shares_directories_with_another_process_is_not_alone_until_that_ends() {
    let parent = settled(process());
    let sharer = child(&parent, CLONE_FS);
    let apart = child(&parent, 0);
    assert!(parent.directory().begin_execution(1).is_none());
    assert!(apart.directory().begin_execution(1).is_some());
    end(sharer, 0);
    assert!(parent.directory().begin_execution(1).is_some());
    end(apart, 0);
    end(parent, 0);
}
