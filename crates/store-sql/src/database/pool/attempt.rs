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
    pub(super) result: Result<T, TransactionError>,
    /// What the next attempt needs. Set after a lost race.
    pub(super) retry: Option<(JobAttempt<J>, RunningJob, Slot)>,
    /// The slot of a job with a large result, held until the caller has received the result.
    pub(super) slot: Option<Slot>,
}

/// A job and the resources that it uses on its thread.
pub(super) struct JobAttempt<J> {
    context: JobContext,
    intent: Intent,
    /// Whether the caller holds the slot until it has received the result, which bounds the large results in memory.
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
        running: RunningJob,
        slot: Slot,
        sender: oneshot::Sender<AttemptOutcome<T, J>>,
    ) -> Option<Slot>
    where
        J: FnMut(&mut AnyConnection) -> Result<T, TransactionError>,
    {
        let (context, job) = (&self.context, &mut self.job);
        let perform = || context.perform(self.intent, job);
        let result = catch_unwind(AssertUnwindSafe(|| self.span.in_scope(perform)));
        // The panic hook has logged the panic. The pool discards the connection.
        let result = result.unwrap_or_else(|_| {
            let panicked = "a database job panicked; the log has the panic's message";
            Err(StoreError::Other(panicked.into()).into())
        });
        // If the caller is gone, `send` drops the outcome and with it the slot.
        if matches!(&result, Err(error) if error.is_lost_race()) {
            let _ = sender.send(AttemptOutcome {
                result,
                retry: Some((self, running, slot)),
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
        drop((running, self));
        let _ = sender.send(AttemptOutcome {
            result,
            retry: None,
            slot: kept,
        });
        free
    }
}
