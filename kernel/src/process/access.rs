//! Whether one process may look into another: the one check behind `process_vm_readv`, the private
//! files and links of `/proc/PID`, `get_robust_list`, and whatever comes later.
//!
//! It decides as `ptrace_may_access` of Linux does, and hands out what may be looked at: the resources
//! of the very moment for which it decided. Since `execve` replaces memory and credentials in one step,
//! nobody reaches the memory of a program whose credentials were not asked.

use abi::Errno;
use fs::Identity;

use super::credentials::{Capability, Credentials};
use super::thread::{Resources, Thread};

/// Who looks.
pub struct Observer {
    user: u32,
    group: u32,
    /// What the other one may have at most.
    capabilities: u64,
    may_trace: bool,
    process: i32,
    /// The program that it was when it opened the file; `None` when it acts now.
    program: Option<u64>,
}

impl Observer {
    /// Whoever accesses a file, with its file-system ids and the capabilities in force.
    pub fn of_file(identity: &Identity) -> Observer {
        Observer {
            user: identity.user,
            group: identity.group,
            capabilities: identity.capabilities,
            may_trace: identity.is_capable(Capability::Trace),
            process: identity.process,
            program: Some(identity.program),
        }
    }

    /// Whoever makes a call, with its real ids and the permitted capabilities.
    pub fn of_call(thread: &Thread) -> Observer {
        let credentials = thread.credentials();
        Observer {
            user: credentials.user.real,
            group: credentials.group.real,
            capabilities: credentials.capabilities.permitted,
            may_trace: credentials.is_capable(Capability::Trace),
            process: thread.process.pid.0,
            program: None,
        }
    }

    /// What the thread works with, if the observer may look into it.
    ///
    /// # Errors
    /// `EPERM`, unless it is the observer's own process (which still has the program that opened the file,
    /// or a descriptor from before `execve` would show a program with other rights), or has the observer's ids in every way, can be
    /// dumped and may nothing that the observer may not, or the observer may look into everything.
    pub fn look_into(&self, target: &Thread) -> Result<Resources, Errno> {
        let resources = target.resources();
        let has_program = self.program.is_none_or(|program| program == resources.space.id());
        let is_own = target.process.pid.0 == self.process && has_program;
        let is_open = || {
            let credentials = &resources.credentials;
            self.has_ids_of(credentials)
                && resources.space.is_dumpable()
                && credentials.capabilities.permitted & !self.capabilities == 0
        };
        if is_own || self.may_trace || is_open() { Ok(resources) } else { Err(Errno::EPERM) }
    }

    fn has_ids_of(&self, target: &Credentials) -> bool {
        let (user, group) = (&target.user, &target.group);
        [user.real, user.effective, user.saved] == [self.user; 3]
            && [group.real, group.effective, group.saved] == [self.group; 3]
    }
}

#[cfg(test)]
mod tests {
    use super::super::credentials::IdSet;
    use super::super::testing;
    use super::*;
    use crate::memory::tests::Whole as _;
    use alloc::sync::Arc;

    fn act_for(thread: &Thread, user: u32) {
        let mut credentials = Credentials::superuser();
        credentials.group = IdSet::all(user);
        credentials.set_users(IdSet::all(user));
        thread.set_credentials(credentials);
    }

    #[test]
    fn only_like_processes_look_into_each_other() {
        let (root, one, same, other) =
            (testing::process(), testing::process(), testing::process(), testing::process());
        act_for(&one, 7);
        act_for(&same, 7);
        act_for(&other, 8);
        let may = |observer: &Thread, target: &Thread| {
            Observer::of_call(observer).look_into(target).is_ok()
        };
        assert!(may(&one, &same));
        assert!(!may(&one, &other) && !may(&one, &root));
        assert!(may(&root, &one));
        same.space().set_dumpable(false);
        assert!(!may(&one, &same), "not once it cannot be dumped");
        assert!(may(&same, &same) && may(&root, &same));
        for thread in [root, one, same, other] {
            testing::end(thread, 0);
        }
    }

    #[test]
    fn a_file_from_before_a_program_gained_rights_does_not_show_it() {
        let thread = testing::process();
        act_for(&thread, 7);
        let opener = thread.identity();
        assert!(Observer::of_file(&opener).look_into(&thread).is_ok());
        let space = thread.space().fork().unwrap();
        space.set_dumpable(false);
        thread.become_program(space, Arc::new(Credentials::superuser()), b"gains");
        assert!(Observer::of_file(&opener).look_into(&thread).is_err());
        assert!(Observer::of_call(&thread).look_into(&thread).is_ok());
        testing::end(thread, 0);
    }

    #[test]
    fn one_with_more_capabilities_is_closed() {
        let (one, other) = (testing::process(), testing::process());
        act_for(&one, 7);
        act_for(&other, 7);
        let mut credentials = (*other.credentials()).clone();
        credentials.capabilities.permitted = Capability::Kill.bit();
        other.set_credentials(credentials);
        assert!(Observer::of_call(&one).look_into(&other).is_err());
        assert!(Observer::of_call(&other).look_into(&one).is_ok());
        for thread in [one, other] {
            testing::end(thread, 0);
        }
    }
}
