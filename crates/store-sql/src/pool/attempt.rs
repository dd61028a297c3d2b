//! One try of a job on a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use domain::error::StoreError;
use tokio::sync::{OwnedSemaphorePermit as Turn, oneshot};
use tracing::Span;

use super::{Access, UnderWay};
use crate::connection::{AnyConnection, Intent};
use crate::error::Fault;

/// How it went. If it lost a race, also what it is repeated with: itself, the word that it is under way, its turn.
pub(super) type Ended<T, J> = (Result<T, Fault>, Option<(Attempt<J>, UnderWay, Turn)>);

/// A job, and what it needs on its thread.
pub(super) struct Attempt<J> {
    access: Access,
    intent: Intent,
    span: Span,
    job: J,
}

impl<J> Attempt<J> {
    pub(super) fn new(access: Access, intent: Intent, job: J) -> Self {
        let span = Span::current();
        Self {
            access,
            intent,
            span,
            job,
        }
    }

    /// Tells the caller how it went; for one that went away nothing is repeated. A job that outlives its caller has its turn
    /// until it ends. The turn comes back, unless another try has it.
    pub(super) fn run<T>(
        mut self,
        under_way: UnderWay,
        turn: Turn,
        tell: oneshot::Sender<Ended<T, J>>,
    ) -> Option<Turn>
    where
        J: FnMut(&mut AnyConnection) -> Result<T, Fault>,
    {
        let (access, job) = (&self.access, &mut self.job);
        let perform = || access.perform(self.intent, job);
        let answer = catch_unwind(AssertUnwindSafe(|| self.span.in_scope(perform)));
        // The panic itself was told by its hook. The connection it was on is not used again.
        let answer = answer.unwrap_or_else(|_| {
            let panicked = "a job of the database panicked";
            Err(StoreError::Other(panicked.into()).into())
        });
        // Whoever is not there any more need not be told.
        if matches!(&answer, Err(fault) if fault.is_lost_race()) {
            let _ = tell.send((answer, Some((self, under_way, turn))));
            return None;
        }
        // Whoever waits for this turn need not wait until the caller has seen the answer.
        // And what the job had, with the request's span, is not needed after that.
        drop((under_way, self));
        let _ = tell.send((answer, None));
        Some(turn)
    }
}
