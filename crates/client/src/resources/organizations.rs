//! The user's organizations, and their members.

use futures::Stream;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::{
    OrganizationInvite, OrganizationInviteResult, OrganizationList, OrganizationMember,
    OrganizationMemberPage, SuccessResponse,
};
use crate::operations;
use crate::page::{Page, all};

/// The user's organizations. An organization without the user is refused as missing (404).
#[derive(Debug, Clone)]
pub struct Organizations(pub(crate) Client);

impl Organizations {
    /// All organizations of the user, the personal one first.
    pub async fn list(&self) -> Result<OrganizationList, Error> {
        self.0.ask(&Call::to(&operations::ORGANIZATIONS)).await
    }

    /// One page of members, by name; `at` is a former page's [`Page::next_page_id`].
    pub async fn members(
        &self,
        organization: &str,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<OrganizationMember>, Error> {
        let call = Call::to(&operations::ORGANIZATION_MEMBERS).at(organization);
        let page: OrganizationMemberPage = self.0.ask(&call.page(limit, at)).await?;
        Ok(Page {
            items: page.items,
            next_page_id: page.next_page_id,
        })
    }

    /// All members, by name.
    pub fn all_members(
        &self,
        organization: &str,
    ) -> impl Stream<Item = Result<OrganizationMember, Error>> + use<> {
        let call = Call::to(&operations::ORGANIZATION_MEMBERS).at(organization);
        all(self.0.clone(), call)
    }

    /// Invites people. Only this response has the links. If it is lost, the invitations may exist.
    pub async fn invite(
        &self,
        organization: &str,
        people: &OrganizationInvite,
    ) -> Result<OrganizationInviteResult, Error> {
        let call = Call::to(&operations::INVITE_MEMBERS).at(organization);
        self.0.ask(&call.body(people)?).await
    }

    /// Removes a member, named by login name or id; or leaves the organization.
    pub async fn remove_member(&self, organization: &str, user: &str) -> Result<(), Error> {
        let call = Call::to(&operations::REMOVE_MEMBER);
        let call = call.at(organization).at(user);
        self.0.ask::<SuccessResponse>(&call).await.map(drop)
    }
}
