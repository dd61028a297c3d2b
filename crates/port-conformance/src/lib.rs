//! Conformance tests of the ports: what every adapter must do.
//!
//! Each conformance test is a named `async fn`. One macro per port generates a `#[tokio::test]` for each of them, given an
//! expression that makes a fresh adapter:
//!
//! ```text
//! async fn fresh() -> Fixture { … }   // derefs to `StorePorts` (or, for backends, to the backend); its drop cleans up
//! port_conformance::settings_repository_conformance!(fresh());
//! ```
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

/// Asserts that a value has a shape, and shows it when it does not.
macro_rules! assert_is {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
}
pub(crate) use assert_is;
