//! Who asks the readers of fanotify groups for permission, and waits for their answers.

use alloc::boxed::Box;

use abi::Errno;
use abi::fs::fanotify::FileEvents;
use fs::Location;
use fs::notify::fanotify;

use super::thread::{Interrupted, Thread};

/// Asks whoever wants to decide about what a thread is about to do at a place, and waits for the answers.
///
/// # Errors
/// `EPERM` when somebody denies it, `EINTR` for a thread that is killed.
pub async fn ask(thread: &Thread, place: &Location, events: FileEvents) -> Result<(), Errno> {
    if fanotify::may_ask() { Box::pin(ask_all(thread, place, events)).await } else { Ok(()) }
}

async fn ask_all(thread: &Thread, place: &Location, events: FileEvents) -> Result<(), Errno> {
    for one in [FileEvents::OPEN_EXEC_PERM, FileEvents::OPEN_PERM, FileEvents::ACCESS_PERM] {
        if !events.contains(one) {
            continue;
        }
        let mut questions = fanotify::questions(place, one);
        while let Some((group, question)) = questions.ask_next() {
            match thread.killable(question.wait()).await {
                Ok(true) => {}
                Ok(false) => return Err(Errno::EPERM),
                Err(Interrupted) => {
                    if let Some(group) = group.upgrade() {
                        group.withdraw(&question);
                    }
                    return Err(Errno::EINTR);
                }
            }
        }
    }
    Ok(())
}
