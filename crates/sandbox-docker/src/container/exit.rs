//! Describes how a container ended.

use bollard::models::ContainerState;

use crate::engine::errors::without_host_paths;

/// Added to the signal number in the exit code of a killed process.
const SIGNAL_EXIT_BASE: i64 = 128;
const SIGKILL: i64 = 9;
const SIGTERM: i64 = 15;

/// What an inspection reports about the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerExit {
    pub(crate) code: i64,
    /// The kernel killed a process for lack of memory; not necessarily the main one.
    pub(crate) out_of_memory: bool,
    /// The engine's message if the container could not run.
    pub(crate) error: String,
    /// The container's memory limit in bytes, 0 for none.
    pub(crate) memory: i64,
}

impl ContainerExit {
    pub(crate) fn new(state: &ContainerState, memory: Option<i64>) -> Self {
        Self {
            code: state.exit_code.unwrap_or_default(),
            out_of_memory: state.oom_killed.unwrap_or_default(),
            error: without_host_paths(state.error.as_deref().unwrap_or_default().trim()),
            memory: memory.unwrap_or_default(),
        }
    }

    /// Whether the exit looks like the response to a stop request. Only the service knows whether it sent one.
    pub(crate) fn is_orderly(&self) -> bool {
        is_orderly(self.code) && !self.out_of_memory && self.error.is_empty()
    }

    /// Whether the program is missing or not executable (exit codes of shells and init processes).
    pub(crate) fn is_unrunnable(&self) -> bool {
        matches!(self.code, 126 | 127)
    }

    /// Whether the container was killed, and the engine does not (yet) report lack of memory as the cause.
    pub(crate) fn is_possible_oom(&self) -> bool {
        self.code == SIGNAL_EXIT_BASE + SIGKILL && !self.out_of_memory
    }

    /// Completes the phrase "the agent server …".
    pub(crate) fn describe(&self) -> String {
        if !self.error.is_empty() {
            return format!("could not be run: {}", self.error);
        }
        let killed = self.code == SIGNAL_EXIT_BASE + SIGKILL;
        let how = match self.code - SIGNAL_EXIT_BASE {
            _ if killed && self.out_of_memory => {
                return format!("was ended because it ran out of memory{}", self.limit());
            }
            // Engines report lack of memory a moment after the end, so its absence proves little.
            SIGKILL => "was killed (signal 9: by hand, or because memory ran out)".to_owned(),
            signal @ 1..=64 => format!("was ended by signal {signal}"),
            _ => format!("ended with exit code {}", self.code),
        };
        if self.out_of_memory {
            format!(
                "{how}, after a program in the sandbox ran out of memory{}",
                self.limit()
            )
        } else {
            how
        }
    }

    fn limit(&self) -> String {
        match u64::try_from(self.memory) {
            Ok(bytes) if bytes > 0 => format!(" (limit {})", size(bytes)),
            _ => String::new(),
        }
    }
}

/// See [`ContainerExit::is_orderly`].
pub(crate) fn is_orderly(code: i64) -> bool {
    code == 0 || code == SIGNAL_EXIT_BASE + SIGTERM
}

/// The exit code in the status line of a list: `Exited (143) 5 minutes ago`.
pub(crate) fn listed_code(status: &str) -> Option<i64> {
    let (_, rest) = status.split_once('(')?;
    rest.split_once(')')?.0.parse().ok()
}

fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes >= MIB => format!("{} MiB", bytes / MIB),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i64, out_of_memory: bool) -> ContainerExit {
        ContainerExit {
            code,
            out_of_memory,
            error: String::new(),
            memory: 4 << 30,
        }
    }

    #[test]
    fn exits_are_described() {
        for (exit, description) in [
            (exit(0, false), "ended with exit code 0"),
            (exit(3, false), "ended with exit code 3"),
            (
                exit(137, false),
                "was killed (signal 9: by hand, or because memory ran out)",
            ),
            (exit(139, false), "was ended by signal 11"),
            (exit(255, false), "ended with exit code 255"),
            (
                exit(137, true),
                "was ended because it ran out of memory (limit 4 GiB)",
            ),
            (
                exit(1, true),
                "ended with exit code 1, after a program in the sandbox ran out of memory (limit 4 GiB)",
            ),
        ] {
            assert_eq!(exit.describe(), description);
        }
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(1536 << 20), "1536 MiB");
    }

    #[test]
    fn only_orderly_exits_look_requested() {
        assert!(exit(0, false).is_orderly());
        assert!(exit(143, false).is_orderly());
        assert!(!exit(143, true).is_orderly());
        assert!(!exit(137, false).is_orderly());
        assert_eq!(listed_code("Exited (143) 5 minutes ago"), Some(143));
        assert_eq!(listed_code("Created"), None);
    }
}
