//! The command `organizations`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use client::{
    Error, MailDelivery, Organization, OrganizationInvite, OrganizationMember, Organizations,
};
use serde_json::json;

use super::args::{Listing, OrganizationsCommand};
use super::connect::Connection;
use super::output::{CommandOutput, plain};
use super::sandboxes::{seconds, show_list};

const TABLE_HEADER: &str = "ID                                KIND      NAME";
const MEMBER_TABLE_HEADER: &str =
    "ID                                ROLE    NAME                              E-MAIL";
/// Longest link that is printed.
const MAX_LINK_CHARS: usize = 2000;

pub(super) async fn run(
    command: OrganizationsCommand,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let organizations = connection.client.organizations();
    match command {
        OrganizationsCommand::List => list(&organizations, connection, output).await,
        OrganizationsCommand::Members {
            organization,
            listing,
        } => {
            let shown = members(&organization, &listing, connection, output);
            let shown = Box::pin(shown).await;
            shown.map_err(|error| match error.downcast() {
                Ok(error) => explain_missing(error, connection),
                Err(explained) => explained,
            })
        }
        OrganizationsCommand::Invite {
            organization,
            email,
            role,
        } => {
            let people = OrganizationInvite {
                emails: vec![email],
                role: role.as_str().into(),
            };
            invite(&organization, &people, connection, output).await
        }
        OrganizationsCommand::Remove { organization, user } => {
            let removed = organizations.remove_member(&organization, &user).await;
            removed.map_err(|error| explain_missing(error, connection))?;
            let line = format!("removed {} from {organization}", plain(&user, 130));
            output.item(&json!({"success": true}), &line)
        }
    }
}

async fn list(
    organizations: &Organizations,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let found = organizations.list().await;
    let found = found.map_err(|error| connection.explain(error))?;
    let mut table = TABLE_HEADER.to_owned();
    for item in &found.items {
        // Writing to a String cannot fail.
        let _ = write!(table, "\n{}", row(item));
    }
    output.item(&found, &table)
}

async fn members(
    organization: &str,
    listing: &Listing,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let organizations = connection.client.organizations();
    let page = organizations.members(organization, listing.limit, None);
    let all = organizations.all_members(organization);
    let table = (MEMBER_TABLE_HEADER, member_row as _);
    Box::pin(show_list(listing, table, page, all, (connection, output))).await
}

async fn invite(
    organization: &str,
    people: &OrganizationInvite,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let organizations = connection.client.organizations();
    let made = organizations.invite(organization, people).await;
    let made = made.map_err(|error| explain_missing(error, connection))?;
    if let Some(failed) = made.failed.first() {
        let (email, error) = (plain(&failed.email, 260), plain(&failed.error, 300));
        bail!("{email} was not invited: {error}");
    }
    let invitation = made.successful.first();
    let invitation = invitation.context("the service made no invitation: update this program")?;
    let link = invitation.invite_url.as_ref();
    let link = link.context("the service sent no link: update this program")?;
    let advice = match invitation.email_delivery {
        Some(MailDelivery::Sent) => "A mail with this link was sent.",
        Some(MailDelivery::Failed) => {
            "The mail was not sent: pass this link on by a channel that you trust."
        }
        _ => "Pass this link on by a channel that you trust.",
    };
    output.note(&format!(
        "{advice} It works once, until {}:",
        seconds(invitation.expires_at)
    ));
    output.item(invitation, &plain(link.expose(), MAX_LINK_CHARS))
}

/// Adds advice to an error about an organization or a member. The service answers 404 also for organizations without the user.
fn explain_missing(error: Error, connection: &Connection) -> anyhow::Error {
    if error.refusal().is_some_and(|refusal| refusal.status == 404) {
        anyhow::anyhow!(
            "{error}\n  `agent-workspace organizations list` lists yours, `organizations members ORG` the members of one."
        )
    } else {
        connection.explain(error)
    }
}

fn row(organization: &Organization) -> String {
    let kind = if organization.is_personal {
        "personal"
    } else {
        "shared"
    };
    let name = plain(&organization.name, 130);
    format!("{:32}  {kind:8}  {name}", plain(&organization.id, 40))
}

fn member_row(member: &OrganizationMember) -> String {
    format!(
        "{:32}  {:6}  {:32}  {}",
        plain(&member.user_id, 40),
        plain(member.role.as_str(), 20),
        plain(&member.name, 130),
        plain(member.email.as_deref().unwrap_or("-"), 260),
    )
}
