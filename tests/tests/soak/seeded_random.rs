//! How much, and chance.

use std::str::FromStr;

/// What the storm is like; the short form unless `SOAK_SANDBOXES`, `SOAK_KILLS` or `SOAK_SEED` say otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoakOptions {
    /// How many are made in all.
    pub(crate) sandboxes: usize,
    /// How often the service dies.
    pub(crate) kills: usize,
    /// Chooses everything.
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
    Some(number.unwrap_or_else(|error| panic!("{name} is no number: {error:?}")))
}

/// Numbers that look random and are the same in every run (the constants are Knuth's, of MMIX).
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// A sequence of its own for each of those who roll.
    pub(crate) fn new(seed: u64, who: usize) -> Self {
        let who = u64::try_from(who).unwrap_or(u64::MAX);
        let mut dice = Self(seed.wrapping_mul(1_000_003).wrapping_add(who));
        // Neighbours begin alike.
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
