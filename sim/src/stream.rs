//! Where one application core is in its work.

use policy::choice::Account;
use policy::table::CALL_LIMIT;

use crate::machine::Sections;
use crate::outcome::StreamOutcome;
use crate::work::Work;

/// What happens next to a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It reaches the path to memory.
    #[default]
    Memory,
    /// It calls, and the path of the call is chosen.
    Calls,
    /// Its request reaches the server.
    Arrives,
    /// Its handler begins, or goes on to its second lock.
    Handles(usize),
    /// Its handler is done with a lock.
    Releases(usize),
    /// Its handler is done.
    Done,
}

/// One application core's state.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// What happens next.
    pub phase: Phase,
    /// The call at hand.
    pub work: Work,
    /// Locks of the call at hand.
    pub sections: Sections,
    /// When the call at hand began.
    pub began: u64,
    /// When the call was sent away.
    pub sent: u64,
    /// When its server takes it if it travels as long as in the trace; 0 where it took another path there.
    pub taken_as_traced: u64,
    /// Core that carries it out, where that is not its own.
    pub server: Option<usize>,
    /// The way back and what follows, after the handler: not waiting.
    pub way_back: u64,
    /// Whether the account wants to know what the call took.
    pub is_timed: bool,
    /// What others did on its core meanwhile, to be made up for.
    pub debt: u64,
    /// Where `policy` keeps what calls cost, by number; empty where no choice is made.
    pub accounts: Vec<Account>,
    /// What became of it.
    pub outcome: StreamOutcome,
}

impl Stream {
    /// A stream of a core.
    pub fn new(core: usize, chooses: bool) -> Stream {
        let accounts = if chooses { vec![Account::default(); CALL_LIMIT] } else { Vec::new() };
        let outcome = StreamOutcome { core, ..StreamOutcome::default() };
        Stream { accounts, outcome, ..Stream::default() }
    }

    /// Its core.
    pub fn core(&self) -> usize {
        self.outcome.core
    }
}
