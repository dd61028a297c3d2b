//! A small generator of pseudo-random numbers (splitmix64). A seed gives the same numbers on every machine.

/// State of the generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// One of many independent generators of a run.
    #[must_use]
    pub fn new(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// True with a chance of so many percent.
    pub(super) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of these; `None` if there are none.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// One of these texts; empty if there are none.
    pub(super) fn word<'a>(&mut self, of: &[&'a str]) -> &'a str {
        self.pick(of).copied().unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let take = |seed| {
            let mut random = Random::new(seed, 3);
            [random.next(), random.next()]
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }
}
