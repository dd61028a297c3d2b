//! Reads lists of a provider's API, whichever way the API pages them.

use domain::git::{GitError, GitPage, GitPageRequest};
use serde_json::Value;
use url::Url;

use crate::http::client::HttpReply;
use crate::http::paging::NextPage;
use crate::http::session::{ProviderResponse, ProviderSession, flag, number, text};
use crate::providers::paging::{ListId, ProviderPage, next_page_number, page, page_number};

/// A list of an API.
#[derive(Debug)]
pub(crate) struct ApiList {
    /// The URL without the parameters of [`Paging`].
    pub(crate) url: Url,
    /// The member of the response that is the list; `None` if the response is the list.
    pub(crate) member: Option<&'static str>,
    /// Whether this response means that there are no items.
    pub(crate) is_empty: fn(&HttpReply) -> bool,
}

impl ApiList {
    pub(crate) fn new(url: Url, member: Option<&'static str>) -> Self {
        Self {
            url,
            member,
            is_empty: |_| false,
        }
    }
}

impl ProviderSession {
    /// Identifies the list `what` by all values that its content depends on.
    pub(crate) fn list_id(&self, what: &str, parts: &[&str]) -> ListId {
        let name = format!("{} {what}", self.spec.name);
        ListId::new(&[&[&name, self.web.as_str()], parts].concat())
    }

    /// Fills one page of `list`. `convert` returns `None` for items to leave out.
    pub(crate) async fn page<T>(
        &self,
        id: ListId,
        request: &GitPageRequest,
        list: &ApiList,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<GitPage<T>, GitError> {
        let fetch = |cursor, length| self.provider_page(list, cursor, length);
        page(id, request, self.spec.paging.max_items, convert, fetch).await
    }

    /// Reads the provider's page at this cursor.
    pub(crate) async fn provider_page(
        &self,
        list: &ApiList,
        cursor: Option<String>,
        length: usize,
    ) -> Result<ProviderPage, GitError> {
        let paging = &self.spec.paging;
        let first = match paging.next {
            NextPage::Offset => 0,
            _ => 1,
        };
        let (position, number) = if let NextPage::TokenHeader(_) = paging.next {
            (cursor, first)
        } else {
            let number = page_number(cursor.as_deref(), first)?;
            (Some(number.to_string()), number)
        };
        let mut url = list.url.clone();
        let parameters = position.iter().map(|position| (paging.position, position));
        let length = length.to_string();
        url.query_pairs_mut()
            .extend_pairs(parameters)
            .append_pair(paging.length, &length);
        let reply = self.send_get(url).await?;
        if (list.is_empty)(&reply) {
            return Ok(ProviderPage::default());
        }
        let mut response = self.parse(reply)?;
        Ok(ProviderPage {
            next: next_cursor(paging.next, &response, number),
            values: response.list(list.member),
        })
    }
}

fn next_cursor(next: NextPage, response: &ProviderResponse, page: usize) -> Option<String> {
    match next {
        NextPage::Link => next_page_number(page, response.has_next_link()),
        NextPage::NumberHeader(name) | NextPage::TokenHeader(name) => {
            response.header(name).map(str::to_owned)
        }
        NextPage::NumberInUrl => {
            let url: Url = text(&response.body, "/next")?.parse().ok()?;
            let page = url.query_pairs().find(|(name, _)| name == "page")?.1;
            page.parse::<u32>().ok().map(|number| number.to_string())
        }
        NextPage::Offset => {
            let is_last = flag(&response.body, "/isLastPage").unwrap_or(true);
            let next = number(&response.body, "/nextPageStart").filter(|_| !is_last);
            next.map(|next| next.to_string())
        }
    }
}
