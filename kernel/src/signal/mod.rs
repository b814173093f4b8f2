//! Signals: what is pending, who takes it, and how a handler is entered and left.
//!
//! ```text
//!  kill, faults, timers, children          the thread's run_user task
//!        |                                         |
//!   send_to_process / send_to_thread         has_attention()? -> before_user
//!        | put into a queue                        | stop, exit
//!        | choose a thread that takes it           | take out the next signal
//!        | attention, wake, kick ----------------> | default action, or a frame on the user's stack
//! ```
//!
//! A signal is kept by the thread or by the process until some thread that does not block it passes
//! `before_user`. Waits end early through [`interruptible`]; a call that was cut short answers with a
//! restart code, and `before_user` decides whether it is executed again. There are no core dumps.

mod action;
mod deliver;
mod frame;
mod info;
pub mod made_timers;
mod process;
mod queue;
mod ranks;
mod send;
pub mod signalfd;
mod stop;
#[cfg(test)]
mod tests;
mod thread;
pub mod timers;
mod wait;

pub use action::{ActionTable, Disposition, SharedActions, default_disposition, ignores};
pub use deliver::{BeforeUser, before_user, force, note_restart, replaces_registers};
pub use frame::{
    exchange_stack, restore as restore_frame, restore_at_once as restore_frame_at_once,
};
pub use info::{SignalInfo, TrapCode};
pub use process::ProcessSignals;
pub use send::{discard_ignored, send_to_group, send_to_process, send_to_thread};
pub use stop::{process_ended, thread_ended};
pub use thread::{InterruptedCall, RestartBlock, ThreadSignals};
pub use wait::{Interruption, interruptible, killable, set_mask, suspend, timed_wait, with_mask};
