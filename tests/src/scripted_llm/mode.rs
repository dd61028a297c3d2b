//! What a model name or path segment asks of the script.

use std::time::Duration;

/// What the model does once it has a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Follows the script.
    Work,
    /// Answers in text even when tools are offered.
    Talk,
    /// Answers 401.
    Refuse,
    /// Answers 500.
    Fail,
    /// Never answers.
    Hang,
}

/// How to answer, read from `refuse`, `slow-300`, `steps-20+slow-300`, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// What to do.
    pub kind: Kind,
    /// Wait this long before each answer.
    pub delay: Duration,
    /// Terminal calls before `finish`.
    pub steps: usize,
}

impl Default for Mode {
    fn default() -> Self {
        Self {
            kind: Kind::Work,
            delay: Duration::ZERO,
            steps: 1,
        }
    }
}

impl Mode {
    /// Reads a model name or path segment; unknown words change nothing.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let mut mode = Self::default();
        let words = name.rsplit('/').next().unwrap_or(name);
        for word in words.split('+') {
            let (verb, number) = match word.split_once('-') {
                Some((verb, digits)) => (verb, digits.parse::<u32>().ok()),
                None => (word, None),
            };
            match (verb, number) {
                ("refuse", None) => mode.kind = Kind::Refuse,
                ("fail", None) => mode.kind = Kind::Fail,
                ("hang", None) => mode.kind = Kind::Hang,
                ("talk", None) => mode.kind = Kind::Talk,
                ("slow", Some(ms)) => mode.delay = Duration::from_millis(u64::from(ms)),
                ("steps", Some(n)) => mode.steps = usize::try_from(n).unwrap_or(usize::MAX),
                _ => {}
            }
        }
        mode
    }

    /// The mode of one request: the path segment before `v1` if there is one, else the model name.
    #[must_use]
    pub fn of(path: &str, model: &str) -> Self {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or("");
        if first.is_empty() || first == "v1" || first == "chat" {
            Self::parse(model)
        } else {
            Self::parse(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_combine_and_unknown_ones_are_ignored() {
        assert_eq!(Mode::parse("openai/scripted"), Mode::default());
        assert_eq!(Mode::parse("gpt-4"), Mode::default());
        let long = Mode::parse("openai/steps-20+slow-300");
        assert_eq!((long.steps, long.delay), (20, Duration::from_millis(300)));
        assert_eq!(Mode::parse("refuse").kind, Kind::Refuse);
    }

    #[test]
    fn a_path_segment_wins_over_the_model() {
        assert_eq!(
            Mode::of("/fail/v1/chat/completions", "refuse").kind,
            Kind::Fail
        );
        assert_eq!(
            Mode::of("/v1/chat/completions", "refuse").kind,
            Kind::Refuse
        );
        assert_eq!(Mode::of("/chat/completions", "hang").kind, Kind::Hang);
    }
}
