//! Hosts that the egress policy refused to the user's sandboxes.

use futures::Stream;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::{EgressApproval, EgressDecision, EgressRequest, SuccessResponse};
use crate::operations;
use crate::page::{Page, all};

/// Requests of the user's sandboxes, and the user's decisions.
#[derive(Debug, Clone)]
pub struct EgressRequests(pub(crate) Client);

impl EgressRequests {
    /// One page, newest first; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        decision: Option<&EgressDecision>,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<EgressRequest>, Error> {
        self.0.ask(&list(decision).page(limit, at)).await
    }

    /// All requests with this decision, newest first.
    pub fn all(
        &self,
        decision: Option<&EgressDecision>,
    ) -> impl Stream<Item = Result<EgressRequest, Error>> + use<> {
        all(self.0.clone(), list(decision))
    }

    /// Lets the sandbox that asked, or all of the user's, reach the host.
    pub async fn approve(
        &self,
        id: &str,
        approval: &EgressApproval,
    ) -> Result<EgressRequest, Error> {
        let call = Call::to(&operations::APPROVE_EGRESS_REQUEST).at(id);
        self.0.ask(&call.body(approval)?).await
    }

    /// Refuses the host for good.
    pub async fn deny(&self, id: &str) -> Result<EgressRequest, Error> {
        let call = Call::to(&operations::DENY_EGRESS_REQUEST).at(id);
        self.0.ask(&call).await
    }

    /// Deletes the request with its decision: the next attempt asks again.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        let call = Call::to(&operations::DELETE_EGRESS_REQUEST).at(id);
        self.0.ask::<SuccessResponse>(&call).await.map(drop)
    }
}

fn list(decision: Option<&EgressDecision>) -> Call {
    let call = Call::to(&operations::SEARCH_EGRESS_REQUESTS);
    call.maybe("decision__eq", decision.map(EgressDecision::as_str))
}
