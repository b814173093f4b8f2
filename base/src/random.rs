//! Random bytes, good enough for keys: ChaCha20 on each core, seeded from the processor's generator and
//! from the cycle counter, seeded anew now and then.
//!
//! Where the processor has no generator, the seed is only as good as the jitter of the cycle counter at
//! boot; `is_well_seeded` says so.

use hal::{Contract, MAX_CPUS, Machine};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::cpu::{CpuLocal, LocalSlot};

/// Bytes that a seed is used for.
const SEED_LIFETIME_BYTES: usize = 1 << 20;

struct Generator {
    generator: ChaCha20Rng,
    left: usize,
}

static GENERATORS: CpuLocal<Option<Generator>> =
    CpuLocal::new([const { LocalSlot::new(None) }; MAX_CPUS]);

/// Whether the processor has a generator of random numbers.
pub fn is_well_seeded() -> bool {
    Machine::random_u64().is_some()
}

fn seed(before: Option<&mut Generator>) -> Generator {
    let mut seed = [0; 32];
    // What is left of the old state stays in: a seed never gets worse.
    if let Some(before) = before {
        before.generator.fill_bytes(&mut seed);
    }
    let mut mixed = Machine::cycles() ^ Machine::boot_info().start_cycles.rotate_left(32);
    for part in seed.chunks_exact_mut(8) {
        // One step of splitmix64 spreads the jitter of the counter over all bits.
        mixed = (mixed ^ Machine::cycles()).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = mixed;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        word ^= Machine::random_u64().unwrap_or(0);
        part.iter_mut().zip(word.to_le_bytes()).for_each(|(byte, new)| *byte ^= new);
    }
    Generator { generator: ChaCha20Rng::from_seed(seed), left: SEED_LIFETIME_BYTES }
}

/// Fills `into` with random bytes.
pub fn fill(into: &mut [u8]) {
    GENERATORS.with(|slot| {
        let generator = match slot {
            Some(generator) if generator.left >= into.len() => generator,
            other => {
                let fresh = seed(other.as_mut());
                other.insert(fresh)
            }
        };
        generator.left = generator.left.saturating_sub(into.len());
        generator.generator.fill_bytes(into);
    });
}

/// A random number.
pub fn next_u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A random number below `limit`; 0 when `limit` is 0.
pub fn below(limit: u64) -> u64 {
    ((u128::from(next_u64()) * u128::from(limit)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_differ_and_use_all_values() {
        let mut first = [0; 4096];
        let mut second = [0; 4096];
        fill(&mut first);
        fill(&mut second);
        assert_ne!(first, second);
        let mut seen = [false; 256];
        first.iter().chain(&second).for_each(|byte| seen[usize::from(*byte)] = true);
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        assert!((0..1000).all(|_| below(7) < 7));
        assert!((0..200).any(|_| below(2) == 1));
        assert_eq!(below(0), 0);
    }
}
