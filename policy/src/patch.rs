//! When a site of an unmodified program is patched: not at its first traps, because a program that ends
//! soon would pay for the patch and gain nothing.
//!
//! A word remembers a site: its address times 256, plus the traps seen, or `REFUSED`. Sites share
//! words; the one that trapped last has it.

/// Traps at one site before it is patched.
pub const TRAPS_BEFORE: u64 = 4;

const REFUSED: u64 = 255;

/// What to do at a trap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// Patch the site.
    Now,
    /// Let it trap.
    NotNow,
}

/// The word after one more trap at `site`, and what to do.
pub fn count(word: u64, site: u64) -> (u64, Attempt) {
    if word >> 8 != site & (u64::MAX >> 8) {
        return (site << 8 | 1, Attempt::NotNow);
    }
    match word & 255 {
        REFUSED => (word, Attempt::NotNow),
        seen if seen + 1 >= TRAPS_BEFORE => (word, Attempt::Now),
        _ => (word + 1, Attempt::NotNow),
    }
}

/// The word of a site that cannot be patched.
pub fn refuse(site: u64) -> u64 {
    site << 8 | REFUSED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_patched_after_some_traps_in_a_row() {
        let mut word = 0;
        let mut traps = 0;
        loop {
            traps += 1;
            let (next, attempt) = count(word, 0x7fff_1234_5678);
            if attempt == Attempt::Now {
                break;
            }
            word = next;
        }
        assert_eq!(traps, TRAPS_BEFORE);
    }

    #[test]
    fn a_refused_site_is_never_tried_again_while_remembered() {
        let mut word = refuse(0x1000);
        for _ in 0..1000 {
            let (next, attempt) = count(word, 0x1000);
            assert_eq!(attempt, Attempt::NotNow);
            word = next;
        }
    }

    #[test]
    fn another_site_takes_the_word_over() {
        assert_eq!(count(refuse(0x1000), 0x2000), (0x2000 << 8 | 1, Attempt::NotNow));
    }
}
