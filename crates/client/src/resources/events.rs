//! The events of a conversation.

use futures::Stream;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::follow::{FollowFrom, FollowItem, follow};
use crate::model::{Event, EventFilter, EventOrder};
use crate::operations::{self, Operation};
use crate::page::{Page, all};

/// The events of a conversation.
#[derive(Debug, Clone)]
pub struct Events(pub(crate) Client, pub(crate) String);

impl Events {
    /// The events with these ids, in the order of the ids; `None` for an unknown id. At most 100 ids.
    pub async fn get_many(&self, ids: &[&str]) -> Result<Vec<Option<Event>>, Error> {
        let call = Call::to(&operations::EVENTS).at(&self.1).ids("id", ids);
        self.0.ask(&call).await
    }

    /// One event, if it exists.
    pub async fn get(&self, id: &str) -> Result<Option<Event>, Error> {
        Ok(self.get_many(&[id]).await?.into_iter().next().flatten())
    }

    /// One page; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        filter: &EventFilter,
        order: &EventOrder,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<Event>, Error> {
        let call = self.filtered(&operations::SEARCH_EVENTS, filter);
        let call = call.query("sort_order", order.as_str());
        self.0.ask(&call.page(limit, at)).await
    }

    /// All events.
    pub fn all(
        &self,
        filter: &EventFilter,
        order: &EventOrder,
    ) -> impl Stream<Item = Result<Event, Error>> + use<> {
        let call = self.filtered(&operations::SEARCH_EVENTS, filter);
        all(self.0.clone(), call.query("sort_order", order.as_str()))
    }

    /// The number of events.
    pub async fn count(&self, filter: &EventFilter) -> Result<u64, Error> {
        let call = self.filtered(&operations::COUNT_EVENTS, filter);
        self.0.ask(&call).await
    }

    /// Yields each event once, in order of arrival, and then new ones; optionally only of one kind. Continues across
    /// lost connections and restarts of the service.
    pub fn follow(
        &self,
        from: FollowFrom,
        kind: Option<&str>,
    ) -> impl Stream<Item = Result<FollowItem, Error>> + use<> {
        follow(self.0.clone(), &self.1, from, kind)
    }

    fn filtered(&self, operation: &'static Operation, filter: &EventFilter) -> Call {
        let call = Call::to(operation).at(&self.1);
        call.maybe("kind__eq", filter.kind.as_deref())
            .time("timestamp__gte", filter.from)
            .time("timestamp__lt", filter.until)
    }
}
