//! What each user holds of things that all share: counts by user and kind, compared with a limit before
//! more is given.
//!
//! The counts lie in fixed tables, so nothing here allocates or fails for want of memory. Users of one
//! table beyond its size share its last place, and so the limit.

use crate::sync::{Mutex, rank};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// System calls that wait on a kernel core.
    PendingCalls,
    /// Pages that pipes may take.
    PipePages,
    /// Signals that are pending with their information.
    PendingSignals,
}

const KINDS: usize = 3;
const TABLES: usize = 32;
const PLACES: usize = 32;

/// What one user holds; a place whose counts are all zero is free.
#[derive(Clone, Copy)]
struct Place {
    user: u32,
    counts: [u32; KINDS],
}

const FREE: Place = Place { user: 0, counts: [0; KINDS] };

static USERS: [Mutex<[Place; PLACES]>; TABLES] =
    [const { Mutex::new(&rank::QUOTA, [FREE; PLACES]) }; TABLES];

fn table(user: u32) -> &'static Mutex<[Place; PLACES]> {
    &USERS[user as usize % TABLES]
}

/// The place of a user: one with the name, else a free one, else the last.
fn place_of(places: &mut [Place; PLACES], user: u32) -> usize {
    let is_free = |place: &Place| place.counts == FREE.counts;
    let own = places.iter().position(|place| place.user == user && !is_free(place));
    let found = own.or_else(|| places.iter().position(is_free)).unwrap_or(PLACES - 1);
    if is_free(&places[found]) {
        places[found].user = user;
    }
    found
}

/// Something that a user holds; given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    user: u32,
    kind: Kind,
    place: u8,
    amount: u32,
}

impl Charge {
    /// Counts `amount` in; `None` when the user would hold more than `limit`.
    pub fn new(user: u32, kind: Kind, amount: u32, limit: u32) -> Option<Charge> {
        let mut places = table(user).lock();
        let place = place_of(&mut places, user);
        let count = &mut places[place].counts[kind as usize];
        *count = count.checked_add(amount).filter(|new| *new <= limit)?;
        Some(Charge { user, kind, place: place as u8, amount })
    }

    /// How much it is.
    pub fn amount(&self) -> u32 {
        self.amount
    }

    /// Makes it `amount`; false when the user would hold more than `limit`, then it stays.
    #[must_use]
    pub fn change(&mut self, amount: u32, limit: u32) -> bool {
        let is_granted = self.with_count(|count, old| {
            let new = count.saturating_sub(old).checked_add(amount);
            let new = new.filter(|new| *new <= limit || amount <= old);
            *count = new.unwrap_or(*count);
            new.is_some()
        });
        if is_granted {
            self.amount = amount;
        }
        is_granted
    }

    fn with_count<R>(&self, act: impl FnOnce(&mut u32, u32) -> R) -> R {
        let mut places = table(self.user).lock();
        act(&mut places[usize::from(self.place) % PLACES].counts[self.kind as usize], self.amount)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.with_count(|count, amount| *count = count.saturating_sub(amount));
    }
}

/// What a user holds.
pub fn held(user: u32, kind: Kind) -> u32 {
    let mut places = table(user).lock();
    let place = place_of(&mut places, user);
    places[place].counts[kind as usize]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KIND: Kind = Kind::PipePages;

    #[test]
    fn a_limit_holds_for_each_user_and_kind() {
        let user = 1_000_001;
        let first = Charge::new(user, KIND, 6, 10).unwrap();
        assert!(Charge::new(user, KIND, 5, 10).is_none());
        let other = Charge::new(user + TABLES as u32, KIND, 5, 10);
        assert!(other.is_some() && Charge::new(user, Kind::PendingCalls, 5, 10).is_some());
        let second = Charge::new(user, KIND, 4, 10).unwrap();
        assert_eq!(held(user, KIND), 10);
        drop(first);
        assert_eq!(held(user, KIND), 4);
        drop(second);
        assert_eq!(held(user, KIND), 0);
    }

    #[test]
    fn a_charge_can_grow_to_the_limit_and_always_shrink() {
        let mut charge = Charge::new(1_000_002, KIND, 4, 10).unwrap();
        assert!(charge.change(10, 10) && !charge.change(11, 10));
        assert_eq!((charge.amount(), held(1_000_002, KIND)), (10, 10));
        assert!(charge.change(5, 1));
        assert_eq!(held(1_000_002, KIND), 5);
    }

    #[test]
    fn more_users_than_places_share_one() {
        let charges: Vec<_> = (0..2 * PLACES as u32)
            .map(|index| Charge::new(7 + index * TABLES as u32, Kind::PendingCalls, 1, 100))
            .collect();
        assert!(charges.iter().all(Option::is_some));
        drop(charges);
        let places = USERS[7].lock();
        assert!(places.iter().all(|place| place.counts[0] == 0));
    }
}
