//! What every adapter of a port must do, as executable laws.
//!
//! Each law is a named `async fn` over the port's trait object. One macro per port stamps every law into a test of its
//! own, given an expression that makes a fresh adapter:
//!
//! ```ignore
//! async fn fresh() -> Fixture { … }          // anything that derefs to the adapter; its drop cleans up
//! port_conformance::settings_repository_conformance!(fresh());
//! ```
//!
//! Knows: the ports and their promises. Must never know: an adapter. Laws panic when they are broken, as tests do.

pub mod laws;

/// Stamps each named law of a module into a test of its own.
#[doc(hidden)]
#[macro_export]
macro_rules! stamp_laws {
    ($laws:ident, $fresh:expr, [$($law:ident),* $(,)?]) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let fresh = $fresh.await;
            $crate::laws::$laws::$law(&*fresh).await;
        }
    )*};
}
