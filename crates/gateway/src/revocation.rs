//! For how long whoever asked may have what they asked for.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::LocalBoxFuture;

/// Over when whoever asked may not have any more of it. Streaming when it is first waited for: most answers are whole before
/// anybody needs to.
pub struct Revocation(State);

enum State {
    Ever,
    Later(Box<dyn FnOnce() -> LocalBoxFuture<'static, ()>>),
    Asking(LocalBoxFuture<'static, ()>),
}

impl Revocation {
    /// Never over.
    pub fn ever() -> Self {
        Self(State::Ever)
    }

    /// Over when the future is over that this makes.
    pub fn over(begin: impl FnOnce() -> LocalBoxFuture<'static, ()> + 'static) -> Self {
        Self(State::Later(Box::new(begin)))
    }
}

impl Future for Revocation {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Later(_) = self.0
            && let State::Later(begin) = std::mem::replace(&mut self.0, State::Ever)
        {
            self.0 = State::Asking(begin());
        }
        match &mut self.0 {
            State::Asking(asking) => asking.as_mut().poll(cx),
            State::Ever | State::Later(_) => Poll::Pending,
        }
    }
}
