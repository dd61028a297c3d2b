//! One attempt of a job on a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use domain::error::StoreError;
use tokio::sync::oneshot;
use tracing::Span;

use super::JobContext;
use super::job_queue::Slot;
use super::running_jobs::RunningJob;
use crate::database::connection::{AnyConnection, Intent};
use crate::error::TransactionError;

/// Result of an attempt.
pub(super) struct AttemptOutcome<T, J> {
    pub(super) answer: Result<T, TransactionError>,
    /// Set after a lost race: what the next attempt needs.
    pub(super) again: Option<(JobAttempt<J>, RunningJob, Slot)>,
    /// The slot of a job with a large result, held until the caller has received the result.
    pub(super) slot: Option<Slot>,
}

/// A job and the resources that it uses on its thread.
pub(super) struct JobAttempt<J> {
    context: JobContext,
    intent: Intent,
    /// Whether the caller holds the slot until it has received the result: this bounds the large results in memory.
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

    /// Runs the job and sends the outcome to the caller. Without a caller there is no further attempt. A job that outlives
    /// its caller keeps its slot until it ends. Returns the slot unless the next attempt or the caller holds it.
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
        // The panic hook has logged the panic. The pool discards the connection.
        let answer = answer.unwrap_or_else(|_| {
            let panicked = "a job of the database panicked";
            Err(StoreError::Other(panicked.into()).into())
        });
        // If the caller is gone, `send` drops the outcome and with it the slot.
        if matches!(&answer, Err(fault) if fault.is_lost_race()) {
            let _ = sender.send(AttemptOutcome {
                answer,
                again: Some((self, under_way, slot)),
                slot: None,
            });
            return None;
        }
        // With a small result, the next job starts before the caller has received the result.
        // The job and the request's span are dropped before the caller continues.
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
