//! What every adapter of a port must do, as executable laws.
//!
//! Each law is a named `async fn`. One macro per port stamps every law into a test of its own, given an expression that
//! makes a fresh adapter:
//!
//! ```text
//! async fn fresh() -> Fixture { … }   // derefs to `Ports` (or, for backends, to the backend); its drop cleans up
//! port_conformance::settings_repository_conformance!(fresh());
//! ```
//!
//! Knows: the ports and their promises. Must never know: an adapter. Laws panic when they are broken, as tests do.
#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a broken law panics"
)]

pub mod fixtures;
pub mod laws;
mod ports;

pub use ports::Ports;

/// Stamps each named law of a module into a test of its own.
#[doc(hidden)]
#[macro_export]
macro_rules! stamp_laws {
    ($laws:ident, $fresh:expr, [$($law:ident),* $(,)?]) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let fresh = $fresh.await;
            $crate::laws::$laws::$law(&fresh).await;
        }
    )*};
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
