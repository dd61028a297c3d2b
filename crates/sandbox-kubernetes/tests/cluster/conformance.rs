//! The conformance tests, per engine.

/// Generates the tests of an engine.
macro_rules! engine {
    ($name:ident, has_sandboxes: $has_sandboxes:literal) => {
        mod $name {
            use crate::support::{Fresh, exit, launch, write_log_line};

            port_conformance::sandbox_backend_conformance!(
                fresh: Fresh::new($has_sandboxes),
                launch: launch,
                exit: exit,
                write_log_line: write_log_line,
                keeps_logs: false,
            );
        }
    };
}

engine!(agent_sandbox, has_sandboxes: true);
engine!(pods, has_sandboxes: false);
