//! The end of access to a forwarded request.

use futures::future::LocalBoxFuture;

/// Completes when the caller loses access to the forwarded request. It is first polled when the response takes long, so a
/// recheck of the access starts with the first poll.
pub type Revocation = LocalBoxFuture<'static, ()>;
