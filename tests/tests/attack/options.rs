//! The durations and sizes of the attacks.

use std::time::Duration;

use acceptance::agent_server::variable_of;

use crate::attacks::Attack;

/// Minimum time of the phase without attackers. The normal users get about 100 responses a second, and a 99th percentile of
/// fewer than 1,000 is noise.
const MIN_ALONE: Duration = Duration::from_secs(10);

/// The options of `cargo xtask attack`: `ATTACK_MINUTES`, `ATTACK_SEED` and `ATTACK_ONLY`. Without minutes: the short form.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The length of all phases together; `None` in CI.
    pub(crate) minutes: Option<u64>,
    /// Determines the order of requests and the times of the kills.
    pub(crate) seed: u64,
    /// Attacks of a single phase; empty: a phase for each attack, and one for all together.
    pub(crate) only: Vec<Attack>,
}

impl Options {
    pub(crate) fn from_environment() -> Self {
        let number = |name: &str| {
            let text = variable_of(name)?;
            let number = text.parse::<u64>();
            Some(number.unwrap_or_else(|error| panic!("{name}={text} is not a number: {error}")))
        };
        Self {
            minutes: number("ATTACK_MINUTES"),
            seed: number("ATTACK_SEED").unwrap_or(1),
            only: variable_of("ATTACK_ONLY").map_or_else(Vec::new, |names| {
                let attack = |name| Attack::ALL.into_iter().find(|it| it.name() == name);
                let attack = |name| attack(name).unwrap_or_else(|| panic!("unknown attack {name}"));
                names.split(',').map(attack).collect()
            }),
        }
    }

    pub(crate) fn scale(&self) -> Scale {
        self.minutes.map_or(Scale::SHORT, Scale::full)
    }
}

/// Durations and numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Duration of a phase with the normal users alone.
    pub(crate) alone: Duration,
    /// Duration of a phase with attackers.
    pub(crate) attack: Duration,
    /// Time until resident memory must be back at the end.
    pub(crate) settle: Duration,
    /// Conversations of each normal user.
    pub(crate) own_conversations: usize,
    /// Events of the long conversation.
    pub(crate) events: usize,
    /// Concurrent counts of these events.
    pub(crate) counts: usize,
    /// Starts with large bodies, and connections that request all of them and read nothing.
    pub(crate) large_starts: usize,
    pub(crate) unread_lists: usize,
    /// Event streams of one user.
    pub(crate) streams: usize,
    /// Starts of tiny conversations.
    pub(crate) conversations: usize,
    /// Connections that send nothing, or a byte a second.
    pub(crate) slow_sockets: usize,
    /// Maximum bytes of an event flood, and of uploads, in one phase.
    pub(crate) flood_bytes: u64,
    pub(crate) upload_bytes: u64,
    /// Bytes of each response to an attacker that are searched for other users' texts. The search takes processor time from
    /// the service.
    pub(crate) searched_bytes: usize,
}

impl Scale {
    const SHORT: Self = Self {
        alone: Duration::from_millis(300),
        attack: Duration::from_millis(1_200),
        settle: Duration::ZERO,
        own_conversations: 2,
        events: 2_000,
        counts: 64,
        large_starts: 3,
        unread_lists: 6,
        streams: 64,
        conversations: 40,
        slow_sockets: 90,
        flood_bytes: 12 << 20,
        upload_bytes: 64 << 20,
        searched_bytes: usize::MAX,
    };

    /// The full numbers, for which the goals hold. A quarter of the time is for the normal users alone, and more if that is too
    /// short for a measurement.
    fn full(minutes: u64) -> Self {
        // Seven attacks, and all of them together.
        let phase = Duration::from_secs(minutes * 60) / 8;
        Self {
            alone: (phase / 4).max(MIN_ALONE),
            attack: phase * 3 / 4,
            settle: Duration::from_secs(120),
            own_conversations: 20,
            events: 200_000,
            counts: 1_000,
            large_starts: 28,
            unread_lists: 20,
            streams: 1_500,
            conversations: 10_000,
            slow_sockets: 900,
            flood_bytes: 600 << 20,
            upload_bytes: 4 << 30,
            searched_bytes: 4 << 10,
        }
    }
}
