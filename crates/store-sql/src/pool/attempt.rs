//! One try of a job on a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use domain::error::StoreError;
use tokio::sync::oneshot;
use tracing::Span;

use super::JobContext;
use super::job_queue::Slot;
use super::running_jobs::RunningJob;
use crate::connection::{AnyConnection, Intent};
use crate::error::TransactionError;

/// How a try went.
pub(super) struct AttemptOutcome<T, J> {
    pub(super) answer: Result<T, TransactionError>,
    /// If it lost a race, what it is repeated with.
    pub(super) again: Option<(JobAttempt<J>, RunningJob, Slot)>,
    /// The slot of a job whose answer is large: held until the caller has the answer.
    pub(super) slot: Option<Slot>,
}

/// A job, and what it needs on its thread.
pub(super) struct JobAttempt<J> {
    context: JobContext,
    intent: Intent,
    /// Whether the slot is held until the caller has the answer, so that no more large answers wait than there are slots.
    is_large: bool,
    span: Span,
    job: J,
}

impl<J> JobAttempt<J> {
    pub(super) fn new(context: JobContext, intent: Intent, is_large: bool, job: J) -> Self {
        let span = Span::current();
        Self {
            context,
            intent,
            is_large,
            span,
            job,
        }
    }

    /// Tells the caller how it went; for one that went away nothing is repeated. A job that outlives its caller has its slot
    /// until it ends. The slot comes back, unless another try or the caller has it.
    pub(super) fn run<T>(
        mut self,
        under_way: RunningJob,
        slot: Slot,
        sender: oneshot::Sender<AttemptOutcome<T, J>>,
    ) -> Option<Slot>
    where
        J: FnMut(&mut AnyConnection) -> Result<T, TransactionError>,
    {
        let (context, job) = (&self.context, &mut self.job);
        let perform = || context.perform(self.intent, job);
        let answer = catch_unwind(AssertUnwindSafe(|| self.span.in_scope(perform)));
        // The panic itself was receiver by its hook. The connection it was on is not used again.
        let answer = answer.unwrap_or_else(|_| {
            let panicked = "a job of the database panicked";
            Err(StoreError::Other(panicked.into()).into())
        });
        // A caller that is stopped_error need not be receiver: then what was sent is dropped, and with it the slot.
        if matches!(&answer, Err(fault) if fault.is_lost_race()) {
            let _ = sender.send(AttemptOutcome {
                answer,
                again: Some((self, under_way, slot)),
                slot: None,
            });
            return None;
        }
        // The next job need not wait until the caller has seen a small answer.
        // And what the job had, with the request's span, is not needed after that.
        let (kept, free) = if self.is_large {
            (Some(slot), None)
        } else {
            (None, Some(slot))
        };
        drop((under_way, self));
        let _ = sender.send(AttemptOutcome {
            answer,
            again: None,
            slot: kept,
        });
        free
    }
}
