//! The end of a caller's right to a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::LocalBoxFuture;

/// Completes when the caller loses access to the forwarded request. The recheck starts at the first poll, because most responses
/// are complete before that.
pub struct Revocation(RevocationState);

enum RevocationState {
    Never,
    NotStarted(Box<dyn FnOnce() -> LocalBoxFuture<'static, ()>>),
    Watching(LocalBoxFuture<'static, ()>),
}

impl Revocation {
    /// Access that is never revoked.
    pub fn never() -> Self {
        Self(RevocationState::Never)
    }

    /// Revokes access when the future that `start` returns completes.
    pub fn when(start: impl FnOnce() -> LocalBoxFuture<'static, ()> + 'static) -> Self {
        Self(RevocationState::NotStarted(Box::new(start)))
    }
}

impl Future for Revocation {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let RevocationState::NotStarted(_) = self.0
            && let RevocationState::NotStarted(start) =
                std::mem::replace(&mut self.0, RevocationState::Never)
        {
            self.0 = RevocationState::Watching(start());
        }
        match &mut self.0 {
            RevocationState::Watching(watch) => watch.as_mut().poll(cx),
            RevocationState::Never | RevocationState::NotStarted(_) => Poll::Pending,
        }
    }
}
