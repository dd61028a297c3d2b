//! Paginated lists.

use futures::stream::{iter, try_unfold};
use futures::{Stream, TryStreamExt as _};
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
    let pages = try_unfold(
        (client, call, Some(None)),
        |(client, call, next)| async move {
            let Some(at) = next else {
                return Ok(None);
            };
            let request = call.clone().query("limit", MAX_PAGE_SIZE.to_string());
            let page: Page<T> = client.ask(&request.maybe("page_id", at.clone())).await?;
            if page.next_page_id.is_some() && page.next_page_id == at {
                let problem = "the pages of the service's list form a cycle".to_owned();
                return Err(Error::Unusable(problem));
            }
            let items = iter(page.items.into_iter().map(Ok));
            Ok(Some((items, (client, call, page.next_page_id.map(Some)))))
        },
    );
    pages.try_flatten()
}
