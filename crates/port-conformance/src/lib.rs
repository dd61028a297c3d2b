//! Conformance tests of the ports: what every adapter must do.
//!
//! Each conformance test is a named `async fn`. One macro for each group of ports generates a `#[tokio::test]` for each
//! of them, given an expression that makes a fresh adapter:
//!
//! ```text
//! async fn fresh() -> Fixture { … }   // derefs to `StorePorts` (or, for backends, to the backend); its drop cleans up
//! port_conformance::settings_repository_conformance!(fresh());
//! ```
//!
//! [`store_conformance!`] generates those of all repository ports.
//!
//! Knows: the ports and their promises. Must never know: an adapter. A conformance test panics when it fails.
#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a failed test panics"
)]

pub mod fixtures;
mod ports;
pub mod suites;

pub use ports::StorePorts;

/// Generates the conformance tests of every repository port, each port in a module. `$fresh` is the name of a function of the
/// calling module that returns a future of a fresh store.
#[macro_export]
macro_rules! store_conformance {
    ($fresh:ident) => {
        mod settings {
            use super::$fresh;
            $crate::settings_repository_conformance!($fresh());
        }
        mod secrets {
            use super::$fresh;
            $crate::secret_repository_conformance!($fresh());
        }
        mod api_keys {
            use super::$fresh;
            $crate::api_key_repository_conformance!($fresh());
        }
        mod sandboxes {
            use super::$fresh;
            $crate::sandbox_repository_conformance!($fresh());
        }
        mod warm {
            use super::$fresh;
            $crate::warm_repository_conformance!($fresh());
        }
        mod conversations {
            use super::$fresh;
            $crate::conversation_repository_conformance!($fresh());
        }
        mod events {
            use super::$fresh;
            $crate::event_store_conformance!($fresh());
        }
        mod event_sequence {
            use super::$fresh;
            $crate::event_sequence_conformance!($fresh());
        }
        mod idempotency {
            use super::$fresh;
            $crate::idempotency_repository_conformance!($fresh());
        }
        mod hosts {
            use super::$fresh;
            $crate::host_repository_conformance!($fresh());
        }
        mod leases {
            use super::$fresh;
            $crate::lease_repository_conformance!($fresh());
        }
        mod vault {
            use super::$fresh;
            $crate::vault_repository_conformance!($fresh());
        }
        mod sealed {
            use super::$fresh;
            $crate::sealed_records_conformance!($fresh());
        }
        mod administration {
            use super::$fresh;
            $crate::administration_conformance!($fresh());
        }
        mod sign_in {
            use super::$fresh;
            $crate::sign_in_conformance!($fresh());
        }
        mod organizations {
            use super::$fresh;
            $crate::organizations_conformance!($fresh());
        }
        mod organization_access {
            use super::$fresh;
            $crate::organization_access_conformance!($fresh());
        }
        mod device_logins {
            use super::$fresh;
            $crate::device_logins_conformance!($fresh());
        }
        mod egress_requests {
            use super::$fresh;
            $crate::egress_requests_conformance!($fresh());
        }
        mod identities {
            use super::$fresh;
            $crate::identities_conformance!($fresh());
        }
        mod audit {
            use super::$fresh;
            $crate::audit_log_conformance!($fresh());
        }
        mod users {
            use super::$fresh;
            $crate::user_repository_conformance!($fresh());
        }
        mod pruning {
            use super::$fresh;
            $crate::pruning_conformance!($fresh());
        }
        mod concurrency {
            use super::$fresh;
            $crate::concurrency_conformance!($fresh());
        }
        mod usage {
            use super::$fresh;
            $crate::usage_repository_conformance!($fresh());
        }
        mod spending {
            use super::$fresh;
            $crate::spending_conformance!($fresh());
        }
        mod nul_text {
            use super::$fresh;
            $crate::nul_text_conformance!($fresh());
        }
        mod pending_messages {
            use super::$fresh;
            $crate::pending_message_repository_conformance!($fresh());
        }
        mod start_tasks {
            use super::$fresh;
            $crate::start_task_repository_conformance!($fresh());
        }
    };
}

/// Generates a `#[tokio::test]` for each named test of a suite.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($suite:tt, $fresh:expr, [$($test:ident),* $(,)?]) => {
        $($crate::conformance_test!($suite, $fresh, $test);)*
    };
}

/// Generates one `#[tokio::test]` that runs a test of a suite on a fresh adapter.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test {
    (($($suite:ident)::+), $fresh:expr, $test:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let fresh = $fresh.await;
            $crate::suites::$($suite)::+::$test(&fresh).await;
        }
    };
}

/// Asserts that a value matches a pattern, and shows the value if it does not.
macro_rules! assert_is {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
}
pub(crate) use assert_is;
