//! Sending, choosing, stopping and waiting, with threads that run no program.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::{Future, pending};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};

use abi::Errno;
use abi::signal::{Action, SIG_IGN, Signal, SignalSet};
use base::user::UserContext;
use hal::UserContext as _;

use super::deliver::{BeforeUser, before_user, note_restart};
use super::*;
use crate::process::{Thread, testing};

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    (count.clone(), Waker::from(count))
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    poll(pin!(future), Waker::noop())
}

/// A thread that has looked at its signals and found none.
fn settled(thread: Arc<Thread>) -> Arc<Thread> {
    assert!(poll_once(interruptible(&*thread, pending::<()>())).is_pending());
    assert!(!thread.has_attention());
    thread
}

fn kill(signal: Signal) -> SignalInfo {
    SignalInfo::kill(signal, 1, 0)
}

fn catch(thread: &Thread, signal: Signal, flags: u64) {
    let action = Action { handler: 0x1000, flags, ..Action::default() };
    thread.process.signals.actions().set(signal, action).unwrap();
}

fn ignore(thread: &Thread, signal: Signal) {
    let action = Action { handler: SIG_IGN, ..Action::default() };
    thread.process.signals.actions().set(signal, action).unwrap();
}

#[test]
fn the_first_thread_takes_a_signal_of_the_process() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    catch(&first, Signal::SIGUSR1, 0);
    send_to_process(&first.process, kill(Signal::SIGUSR1)).unwrap();
    assert!(first.has_attention() && !second.has_attention());
    assert!(first.process.signals.pending().contains(Signal::SIGUSR1));
}

#[test]
fn a_thread_that_blocks_the_signal_is_passed_over() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    catch(&first, Signal::SIGUSR1, 0);
    set_mask(&first, SignalSet::of(Signal::SIGUSR1));
    send_to_process(&first.process, kill(Signal::SIGUSR1)).unwrap();
    assert!(!first.has_attention() && second.has_attention());
}

#[test]
fn a_busy_thread_is_spared_while_another_is_free() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    catch(&first, Signal::SIGUSR1, 0);
    catch(&first, Signal::SIGUSR2, 0);
    send_to_process(&first.process, kill(Signal::SIGUSR1)).unwrap();
    send_to_process(&first.process, kill(Signal::SIGUSR2)).unwrap();
    assert!(first.has_attention() && second.has_attention());
}

#[test]
fn blocking_a_pending_signal_hands_it_to_another_thread() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    catch(&first, Signal::SIGUSR1, 0);
    send_to_process(&first.process, kill(Signal::SIGUSR1)).unwrap();
    set_mask(&first, SignalSet::of(Signal::SIGUSR1));
    assert!(!first.has_attention() && second.has_attention());
}

#[test]
fn an_ignored_signal_is_dropped_unless_blocked() {
    let thread = settled(testing::process());
    ignore(&thread, Signal::SIGUSR1);
    send_to_process(&thread.process, kill(Signal::SIGUSR1)).unwrap();
    send_to_process(&thread.process, kill(Signal::SIGCHLD)).unwrap();
    assert!(thread.process.signals.pending().is_empty());
    set_mask(&thread, SignalSet::of(Signal::SIGUSR1));
    send_to_process(&thread.process, kill(Signal::SIGUSR1)).unwrap();
    assert!(thread.process.signals.pending().contains(Signal::SIGUSR1));
    discard_ignored(&thread.process, Signal::SIGUSR1);
    assert!(thread.process.signals.pending().is_empty());
}

#[test]
fn an_ignored_signal_that_was_kept_for_one_thread_disturbs_no_other() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    set_mask(&first, SignalSet::of(Signal::SIGCHLD));
    send_to_process(&first.process, kill(Signal::SIGCHLD)).unwrap();
    assert!(!first.has_attention() && !second.has_attention());
    assert!(first.process.signals.pending().is_empty());
}

#[test]
fn attention_without_a_reason_ends_no_wait() {
    let thread = settled(testing::process());
    thread.signals.raise_attention();
    assert!(poll_once(interruptible(&*thread, pending::<()>())).is_pending());
    assert!(!thread.has_attention());
}

#[test]
fn a_fatal_signal_ends_all_threads_at_once() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    send_to_process(&first.process, kill(Signal::SIGTERM)).unwrap();
    assert!(first.signals.must_exit() && second.signals.must_exit());
    assert_eq!(first.process.group_exit(), Some(15));
}

#[test]
fn a_blocked_fatal_signal_waits() {
    let thread = settled(testing::process());
    set_mask(&thread, SignalSet::ALL);
    send_to_process(&thread.process, kill(Signal::SIGTERM)).unwrap();
    assert_eq!(thread.process.group_exit(), None);
    send_to_process(&thread.process, kill(Signal::SIGKILL)).unwrap();
    assert_eq!(thread.process.group_exit(), Some(9));
}

#[test]
fn process_1_takes_no_signals() {
    let _ = testing::process();
    let init = crate::process::table::init().unwrap();
    send_to_process(init, kill(Signal::SIGKILL)).unwrap();
    send_to_process(init, kill(Signal::SIGTERM)).unwrap();
    assert_eq!(init.group_exit(), None);
}

#[test]
fn a_wait_ends_when_a_signal_comes_and_is_woken_once() {
    let thread = settled(testing::process());
    catch(&thread, Signal::SIGUSR1, 0);
    let (count, waker) = counting();
    let mut wait = pin!(interruptible(&*thread, pending::<()>()));
    assert!(poll(wait.as_mut(), &waker).is_pending());
    send_to_thread(&thread, kill(Signal::SIGUSR1)).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(poll(wait.as_mut(), &waker).is_ready());
}

#[test]
fn what_is_ready_wins_over_a_signal() {
    let thread = settled(testing::process());
    catch(&thread, Signal::SIGUSR1, 0);
    send_to_thread(&thread, kill(Signal::SIGUSR1)).unwrap();
    assert_eq!(poll_once(interruptible(&*thread, async { 7 })), Poll::Ready(Ok(7)));
}

#[test]
fn a_killable_wait_ends_only_by_the_end() {
    let thread = settled(testing::process());
    catch(&thread, Signal::SIGUSR1, 0);
    let (count, waker) = counting();
    let mut wait = pin!(killable(&thread, pending::<()>()));
    assert!(poll(wait.as_mut(), &waker).is_pending());
    send_to_thread(&thread, kill(Signal::SIGUSR1)).unwrap();
    assert!(poll(wait.as_mut(), &waker).is_pending());
    send_to_thread(&thread, kill(Signal::SIGKILL)).unwrap();
    assert!(count.0.load(Ordering::SeqCst) >= 2);
    assert!(poll(wait.as_mut(), &waker).is_ready());
}

#[test]
fn timed_wait_takes_a_blocked_signal_and_leaves_others() {
    let thread = settled(testing::process());
    set_mask(&thread, SignalSet::ALL);
    send_to_process(&thread.process, kill(Signal::SIGHUP)).unwrap();
    let wanted = SignalSet::of(Signal::SIGUSR1);
    let mut wait = pin!(timed_wait(&thread, wanted, None));
    let (count, waker) = counting();
    assert!(poll(wait.as_mut(), &waker).is_pending());
    send_to_process(&thread.process, kill(Signal::SIGUSR1)).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(Ok(info)) = poll(wait.as_mut(), &waker) else { panic!("still waiting") };
    assert_eq!(info.signal, Signal::SIGUSR1);
    assert_eq!(thread.process.signals.pending(), SignalSet::of(Signal::SIGHUP));
    assert!(!thread.has_attention());
}

#[test]
fn timed_wait_without_time_answers_at_once() {
    let thread = settled(testing::process());
    let wanted = SignalSet::of(Signal::SIGUSR1);
    assert_eq!(poll_once(timed_wait(&thread, wanted, Some(0))), Poll::Ready(Err(Errno::EAGAIN)));
}

#[test]
fn a_replaced_mask_comes_back_unless_a_signal_is_to_be_delivered_under_it() {
    let thread = settled(testing::process());
    let own = SignalSet::of(Signal::SIGUSR1);
    set_mask(&thread, own);
    let other = SignalSet::of(Signal::SIGUSR2);
    let call = pin!(async { Ok(()) });
    let quiet = with_mask(&thread, Some(other), call);
    assert_eq!(poll_once(quiet), Poll::Ready(Ok(())));
    assert_eq!(thread.signals.blocked(), own);
    let call = pin!(async { Err::<(), _>(Errno::ERESTARTNOHAND) });
    let interrupted = with_mask(&thread, Some(other), call);
    assert!(poll_once(interrupted).is_ready());
    assert_eq!(thread.signals.blocked(), other);
}

#[test]
fn a_call_without_a_handler_to_run_is_restarted_and_its_mask_put_back() {
    let thread = settled(testing::process());
    let own = SignalSet::of(Signal::SIGUSR1);
    set_mask(&thread, own);
    let call = pin!(async { Err::<(), _>(Errno::ERESTARTNOHAND) });
    let interrupted = with_mask(&thread, Some(SignalSet::EMPTY), call);
    assert!(poll_once(interrupted).is_ready());
    let mut context = UserContext::new(0x40_0002, 0x7000);
    note_restart(&thread, &context, 130, Errno::ERESTARTNOHAND);
    assert!(thread.has_attention());
    assert_eq!(poll_once(before_user(&thread, &mut context)), Poll::Ready(BeforeUser::Enter));
    assert_eq!(context.call_number(), 130);
    assert_eq!(thread.signals.blocked(), own);
    assert!(!thread.has_attention());
}

#[test]
fn a_stop_is_complete_when_all_threads_stand() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    send_to_process(&first.process, kill(Signal::SIGSTOP)).unwrap();
    let signals = &first.process.signals;
    let (mut one, mut two) = (UserContext::new(0, 0), UserContext::new(0, 0));
    let mut stand_one = pin!(before_user(&first, &mut one));
    let mut stand_two = pin!(before_user(&second, &mut two));
    let (count, waker) = counting();
    assert!(poll(stand_one.as_mut(), &waker).is_pending());
    assert!(second.has_attention());
    assert_eq!(signals.stop_report(false), None);
    assert!(poll(stand_two.as_mut(), &waker).is_pending());
    assert_eq!(signals.stop_report(true), Some(Signal::SIGSTOP));
    assert_eq!(signals.stop_report(true), None);

    send_to_process(&first.process, kill(Signal::SIGCONT)).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
    assert_eq!(poll(stand_one.as_mut(), &waker), Poll::Ready(BeforeUser::Enter));
    assert_eq!(poll(stand_two.as_mut(), &waker), Poll::Ready(BeforeUser::Enter));
    assert!(signals.continue_report(true) && !signals.continue_report(true));
}

#[test]
fn a_thread_that_leaves_completes_a_stop() {
    let first = settled(testing::process());
    let second = settled(testing::thread_beside(&first));
    send_to_process(&first.process, kill(Signal::SIGSTOP)).unwrap();
    let mut context = UserContext::new(0, 0);
    let mut stand = pin!(before_user(&first, &mut context));
    assert!(poll(stand.as_mut(), Waker::noop()).is_pending());
    assert_eq!(first.process.signals.stop_report(false), None);
    testing::leave(&second);
    thread_ended(&second);
    assert_eq!(first.process.signals.stop_report(false), Some(Signal::SIGSTOP));
}

#[test]
fn sigcont_cancels_a_pending_stop_and_a_stop_a_pending_sigcont() {
    let thread = settled(testing::process());
    set_mask(&thread, SignalSet::ALL);
    let pending = || thread.process.signals.pending();
    send_to_process(&thread.process, kill(Signal::SIGTSTP)).unwrap();
    assert!(pending().contains(Signal::SIGTSTP));
    send_to_process(&thread.process, kill(Signal::SIGCONT)).unwrap();
    assert_eq!(pending(), SignalSet::of(Signal::SIGCONT));
    send_to_process(&thread.process, kill(Signal::SIGTSTP)).unwrap();
    assert_eq!(pending(), SignalSet::of(Signal::SIGTSTP));
}

#[test]
fn a_stopped_process_keeps_signals_until_it_continues_but_dies_of_sigkill() {
    let thread = settled(testing::process());
    let (_, waker) = counting();
    let mut context = UserContext::new(0, 0);
    send_to_process(&thread.process, kill(Signal::SIGSTOP)).unwrap();
    let mut stand = pin!(before_user(&thread, &mut context));
    assert!(poll(stand.as_mut(), &waker).is_pending());
    send_to_process(&thread.process, kill(Signal::SIGTERM)).unwrap();
    assert!(poll(stand.as_mut(), &waker).is_pending());
    assert_eq!(thread.process.group_exit(), None);
    send_to_process(&thread.process, kill(Signal::SIGKILL)).unwrap();
    assert_eq!(poll(stand.as_mut(), &waker), Poll::Ready(BeforeUser::Exit));
}

#[test]
fn a_forced_signal_gets_through_a_mask_and_kills_if_it_was_ignored() {
    let thread = settled(testing::process());
    ignore(&thread, Signal::SIGSEGV);
    set_mask(&thread, SignalSet::ALL);
    force(&thread, SignalInfo::kernel(Signal::SIGSEGV));
    let mut context = UserContext::new(0, 0);
    assert_eq!(poll_once(before_user(&thread, &mut context)), Poll::Ready(BeforeUser::Exit));
    assert_eq!(thread.process.group_exit(), Some(11));
}

#[test]
fn a_new_thread_looks_for_what_came_before_it() {
    let first = settled(testing::process());
    catch(&first, Signal::SIGUSR1, 0);
    set_mask(&first, SignalSet::ALL);
    send_to_process(&first.process, kill(Signal::SIGUSR1)).unwrap();
    let second = testing::thread_beside(&first);
    assert!(second.has_attention());
    assert!(poll_once(interruptible(&*second, pending::<()>())).is_ready());
}
