//! Options and pseudorandom numbers.

use std::str::FromStr;

/// The size of the test: the short form, unless `SOAK_SANDBOXES`, `SOAK_KILLS` or `SOAK_SEED` is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoakOptions {
    /// Number of sandboxes.
    pub(crate) sandboxes: usize,
    /// Number of kills.
    pub(crate) kills: usize,
    /// Seed of the pseudorandom numbers.
    pub(crate) seed: u64,
}

impl SoakOptions {
    pub(crate) fn from_environment() -> Self {
        Self {
            sandboxes: variable("SOAK_SANDBOXES").unwrap_or(24).max(2),
            kills: variable("SOAK_KILLS").unwrap_or(4),
            seed: variable("SOAK_SEED").unwrap_or(1),
        }
    }
}

fn variable<T: FromStr<Err: std::fmt::Debug>>(name: &str) -> Option<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "set by `cargo xtask soak`, which starts this suite"
    )]
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|error| panic!("{name} must be a number: {error:?}")))
}

/// Pseudorandom numbers, equal in every run (Knuth's constants of MMIX).
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// A separate sequence for each `stream`.
    pub(crate) fn new(seed: u64, stream: usize) -> Self {
        let stream = u64::try_from(stream).unwrap_or(u64::MAX);
        let mut dice = Self(seed.wrapping_mul(1_000_003).wrapping_add(stream));
        // Sequences of similar seeds start with similar numbers.
        dice.roll(2);
        dice.roll(2);
        dice
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides.max(1)
    }
}
