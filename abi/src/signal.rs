//! Signals: numbers, sets, actions, siginfo, frames.
