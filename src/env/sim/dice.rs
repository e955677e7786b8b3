//! Random streams of a run.
//!
//! Every component draws from its own, derived from the run's seed and the component's name, so that one more draw here
//! does not reshuffle what happens there.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The stream of the component `name` in the run `seed`.
pub fn stream(seed: u64, name: &str) -> Dice {
    Dice { state: xxh3_64_with_seed(name.as_bytes(), seed) }
}

/// A stream of random numbers (SplitMix64: Steele, Lea and Flood, OOPSLA 2014). Its sequence is fixed here, not by a
/// library, so that a seed that failed still fails after an update of one.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a die without sides");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "empty range {low}..={high}");
        match high - low {
            u64::MAX => self.next_u64(),
            width => low + self.below(width + 1),
        }
    }

    pub fn percent(&mut self, chance: u32) -> bool {
        self.ppm(chance.saturating_mul(10_000))
    }

    /// True `chance` times in a million. Draws nothing when the answer is certain.
    pub fn ppm(&mut self, chance: u32) -> bool {
        match chance {
            0 => false,
            1_000_000.. => true,
            _ => self.below(1_000_000) < chance as u64,
        }
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// A stream of its own for one part of this component's work.
    pub fn fork(&mut self) -> Dice {
        Dice { state: self.next_u64() }
    }
}
