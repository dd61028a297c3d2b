//! Paginated lists.

use std::collections::VecDeque;

use futures::Stream;
use futures::stream::try_unfold;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

/// Items per page when everything is requested: the service's maximum.
pub(crate) const MAX_PAGE_SIZE: u16 = 100;

/// A page of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page<T> {
    /// In the list's order.
    pub items: Vec<T>,
    /// The id of the next page; `None` for the last one.
    pub next_page_id: Option<String>,
}

/// Yields all items from this page on. Holds one page at a time, and requests the next one only when its items are needed.
pub(crate) fn all<T: DeserializeOwned>(
    client: Client,
    call: Call,
) -> impl Stream<Item = Result<T, Error>> + use<T> {
    let state = (client, call, VecDeque::new(), Some(None::<String>));
    try_unfold(state, |(client, call, mut items, mut next)| async move {
        loop {
            if let Some(item) = items.pop_front() {
                return Ok(Some((item, (client, call, items, next))));
            }
            let Some(at) = next.take() else {
                return Ok(None);
            };
            let first = call.clone().query("limit", MAX_PAGE_SIZE.to_string());
            let page: Page<T> = client.ask(&first.maybe("page_id", at.clone())).await?;
            if page.next_page_id.is_some() && page.next_page_id == at {
                let problem = "the pages of the service's list form a cycle".to_owned();
                return Err(Error::Unusable(problem));
            }
            items = page.items.into();
            next = page.next_page_id.map(Some);
        }
    })
}
