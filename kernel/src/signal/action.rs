//! What a process does with each signal: its table of actions and the defaults.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::{self as flags, Action, SIG_DFL, SIG_IGN, SIGNAL_COUNT, Signal, SignalSet};
use base::sync::Mutex;

use super::ranks::ACTIONS;

/// What happens when a signal is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Nothing.
    Ignore,
    /// The process ends; some signals leave a core dump (`process::dump`).
    Terminate,
    /// The process stops.
    Stop,
    /// A handler runs.
    Handle(Action),
}

/// The default action of a signal.
pub fn default_disposition(signal: Signal) -> Disposition {
    if SignalSet::IGNORED_BY_DEFAULT.contains(signal) {
        Disposition::Ignore
    } else if SignalSet::STOPPING.contains(signal) {
        Disposition::Stop
    } else {
        Disposition::Terminate
    }
}

/// What an action means for a signal.
pub fn disposition(signal: Signal, action: &Action) -> Disposition {
    match action.handler {
        SIG_DFL => default_disposition(signal),
        SIG_IGN => Disposition::Ignore,
        _ => Disposition::Handle(*action),
    }
}

/// Whether a signal that is not blocked has no effect under an action.
pub fn ignores(signal: Signal, action: &Action) -> bool {
    disposition(signal, action) == Disposition::Ignore
}

/// The actions of all signals. Shared by the threads of a process, and by processes that were cloned
/// with `CLONE_SIGHAND`.
pub struct ActionTable {
    actions: Mutex<[Action; SIGNAL_COUNT]>,
}

impl ActionTable {
    /// All defaults.
    pub fn new() -> ActionTable {
        ActionTable { actions: Mutex::new(&ACTIONS, [Action::default(); SIGNAL_COUNT]) }
    }

    /// A copy of its own, for `fork`.
    pub fn duplicate(&self) -> ActionTable {
        ActionTable { actions: Mutex::new(&ACTIONS, *self.actions.lock()) }
    }

    /// A copy as `execve` leaves it: handlers become defaults, ignored signals stay ignored.
    pub fn after_exec(&self) -> ActionTable {
        let mut actions = *self.actions.lock();
        for action in &mut actions {
            let handler = if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
            *action = Action { handler, ..Action::default() };
        }
        ActionTable { actions: Mutex::new(&ACTIONS, actions) }
    }

    /// A copy with all handlers set to the default, for `CLONE_CLEAR_SIGHAND`.
    pub fn cleared(&self) -> ActionTable {
        self.after_exec()
    }

    /// The action of a signal.
    pub fn get(&self, signal: Signal) -> Action {
        self.actions.lock().get(signal.index()).copied().unwrap_or_default()
    }

    /// Sets the action of a signal and returns the former one; `EINVAL` for those that cannot be
    /// caught.
    pub fn set(&self, signal: Signal, action: Action) -> Result<Action, Errno> {
        if SignalSet::UNBLOCKABLE.contains(signal) {
            return Err(Errno::EINVAL);
        }
        let mut actions = self.actions.lock();
        let slot = actions.get_mut(signal.index()).ok_or(Errno::EINVAL)?;
        Ok(core::mem::replace(
            slot,
            Action {
                flags: action.flags & flags::SA_KNOWN,
                mask: action.mask.without(SignalSet::UNBLOCKABLE),
                ..action
            },
        ))
    }

    /// The action that applies to a signal being delivered now; `SA_RESETHAND` takes effect.
    pub fn take_for_delivery(&self, signal: Signal) -> Action {
        let mut actions = self.actions.lock();
        let Some(slot) = actions.get_mut(signal.index()) else { return Action::default() };
        let action = *slot;
        if action.flags & flags::SA_RESETHAND != 0 && action.handler > SIG_IGN {
            slot.handler = SIG_DFL;
        }
        action
    }

    /// Sets the default action again, for signals that are forced.
    pub fn reset(&self, signal: Signal) {
        if let Some(slot) = self.actions.lock().get_mut(signal.index()) {
            slot.handler = SIG_DFL;
        }
    }

    /// Whether a handler is set for a signal.
    pub fn has_handler(&self, signal: Signal) -> bool {
        self.get(signal).handler > SIG_IGN
    }

    /// Whether a signal that is not blocked would have no effect.
    pub fn ignores(&self, signal: Signal) -> bool {
        ignores(signal, &self.get(signal))
    }

    /// The signals that are ignored on purpose, and those that have handlers: for `/proc`.
    pub fn ignored_and_caught(&self) -> (SignalSet, SignalSet) {
        let actions = self.actions.lock();
        let mut sets = (SignalSet::EMPTY, SignalSet::EMPTY);
        for (action, number) in actions.iter().zip(1..) {
            let Some(signal) = Signal::new(number) else { continue };
            match action.handler {
                SIG_DFL => {}
                SIG_IGN => sets.0.insert(signal),
                _ => sets.1.insert(signal),
            }
        }
        sets
    }

    /// Whether children of the process leave no zombie: `SIGCHLD` is ignored on purpose, or has
    /// `SA_NOCLDWAIT`.
    pub fn reaps_children(&self) -> bool {
        let action = self.get(Signal::SIGCHLD);
        action.handler == SIG_IGN || action.flags & flags::SA_NOCLDWAIT != 0
    }
}

impl Default for ActionTable {
    fn default() -> Self {
        ActionTable::new()
    }
}

/// A shared table.
pub type SharedActions = Arc<ActionTable>;

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(flags: u64) -> Action {
        Action { handler: 0x1000, flags, ..Action::default() }
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        use Disposition::*;
        assert_eq!(default_disposition(Signal::SIGTERM), Terminate);
        assert_eq!(default_disposition(Signal::SIGQUIT), Terminate);
        assert_eq!(default_disposition(Signal::SIGTTIN), Stop);
        assert_eq!(default_disposition(Signal::SIGWINCH), Ignore);
        assert_eq!(default_disposition(Signal::SIGIO), Terminate);
        assert_eq!(default_disposition(Signal::new(64).unwrap()), Terminate);
    }

    #[test]
    fn kill_and_stop_cannot_be_caught() {
        let table = ActionTable::new();
        assert_eq!(table.set(Signal::SIGKILL, handler(0)), Err(Errno::EINVAL));
        assert_eq!(table.set(Signal::SIGSTOP, handler(0)), Err(Errno::EINVAL));
    }

    #[test]
    fn exec_resets_handlers_and_keeps_ignored_signals() {
        let table = ActionTable::new();
        table.set(Signal::SIGUSR1, handler(flags::SA_RESTART)).unwrap();
        table.set(Signal::SIGUSR2, Action { handler: SIG_IGN, ..Action::default() }).unwrap();
        let after = table.after_exec();
        assert_eq!(after.get(Signal::SIGUSR1), Action::default());
        assert!(after.ignores(Signal::SIGUSR2));
    }

    #[test]
    fn a_one_shot_handler_runs_once() {
        let table = ActionTable::new();
        table.set(Signal::SIGUSR1, handler(flags::SA_RESETHAND)).unwrap();
        assert_eq!(table.take_for_delivery(Signal::SIGUSR1).handler, 0x1000);
        assert_eq!(table.take_for_delivery(Signal::SIGUSR1).handler, SIG_DFL);
    }

    #[test]
    fn unknown_flags_and_unblockable_mask_bits_are_dropped() {
        let table = ActionTable::new();
        let action = Action { mask: SignalSet::ALL, ..handler(!0) };
        table.set(Signal::SIGUSR1, action).unwrap();
        let kept = table.get(Signal::SIGUSR1);
        assert_eq!(kept.flags, flags::SA_KNOWN);
        assert_eq!(kept.mask, SignalSet::ALL.without(SignalSet::UNBLOCKABLE));
    }

    #[test]
    fn children_are_reaped_only_when_asked_for() {
        let table = ActionTable::new();
        assert!(!table.reaps_children());
        table.set(Signal::SIGCHLD, handler(flags::SA_NOCLDWAIT)).unwrap();
        assert!(table.reaps_children());
    }
}
