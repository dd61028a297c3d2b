//! Starts of conversations.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::Stream;
use futures::stream::try_unfold;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::{StartOrder, StartTask};
use crate::operations;
use crate::page::{Page, all};

/// Interval of polls of a start, at first and at most.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Consecutive polls that may fail, e.g. while the service restarts: about half a minute.
const MAX_CONSECUTIVE_FAILURES: u32 = 30;

/// Starts of conversations.
#[derive(Debug, Clone)]
pub struct StartTasks(pub(crate) Client);

reads_by_id!(StartTasks => StartTask, START_TASKS "ids");

impl StartTasks {
    /// One page; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        conversation: Option<&str>,
        from: Option<DateTime<Utc>>,
        order: &StartOrder,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<StartTask>, Error> {
        let call = filtered(&operations::SEARCH_START_TASKS, conversation, from);
        let call = call.query("sort_order", order.as_str());
        self.0.ask(&call.page(limit, at)).await
    }

    /// All starts, newest first.
    pub fn all(&self) -> impl Stream<Item = Result<StartTask, Error>> + use<> {
        all(self.0.clone(), Call::to(&operations::SEARCH_START_TASKS))
    }

    /// The number of starts.
    pub async fn count(
        &self,
        conversation: Option<&str>,
        from: Option<DateTime<Utc>>,
    ) -> Result<u64, Error> {
        let call = filtered(&operations::COUNT_START_TASKS, conversation, from);
        self.0.ask(&call).await
    }

    /// Yields a start, now and after every change, until it has ended. Polls the service, so it continues across
    /// restarts of the service.
    pub fn watch(&self, id: &str) -> impl Stream<Item = Result<StartTask, Error>> + use<> {
        let watch = (self.clone(), id.to_owned(), None::<StartTask>);
        try_unfold(watch, |(tasks, id, last)| async move {
            if last.as_ref().is_some_and(|task| task.status.is_final()) {
                return Ok(None);
            }
            let next = tasks.next(&id, last.as_ref()).await?;
            Ok(Some((next.clone(), (tasks, id, Some(next)))))
        })
    }

    async fn next(&self, id: &str, last: Option<&StartTask>) -> Result<StartTask, Error> {
        let (mut pause, mut failures) = (MIN_POLL_INTERVAL, 0);
        loop {
            match self.get(id).await {
                Ok(Some(task)) => {
                    let is_news = last.is_none_or(|last| last.updated_at != task.updated_at);
                    if is_news || task.status.is_final() {
                        return Ok(task);
                    }
                    failures = 0;
                }
                Ok(None) => {
                    let problem = "the start task no longer exists: its conversation was deleted";
                    return Err(Error::Unusable(problem.to_owned()));
                }
                Err(error)
                    if error.is_temporary()
                        && last.is_some()
                        && failures < MAX_CONSECUTIVE_FAILURES =>
                {
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }
}

fn filtered(
    operation: &'static operations::Operation,
    conversation: Option<&str>,
    from: Option<DateTime<Utc>>,
) -> Call {
    let call = Call::to(operation).maybe("conversation_id__eq", conversation);
    call.time("created_at__gte", from)
}
