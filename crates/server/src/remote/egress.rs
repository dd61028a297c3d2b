//! The command `egress`.

use client::{EgressApproval, EgressRequest, Error};

use super::args::EgressCommand;
use super::connect::Connection;
use super::output::{CommandOutput, plain};
use super::sandboxes::{seconds, show_list};

const TABLE_HEADER: &str =
    "ID                                DECISION              ASKED                 HOST";

pub(super) async fn run(
    command: EgressCommand,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let requests = connection.client.egress_requests();
    let (id, decided) = match command {
        EgressCommand::List { pending, listing } => {
            let decision = pending.then(|| "pending".into());
            let page = requests.search(decision.as_ref(), listing.limit, None);
            let all = requests.all(decision.as_ref());
            let table = (TABLE_HEADER, row as _);
            let shown = show_list(&listing, table, page, all, (connection, output));
            return Box::pin(shown).await;
        }
        EgressCommand::Approve { id, all } => {
            let approval = EgressApproval {
                for_all_sandboxes: Some(all),
            };
            let approved = requests.approve(&id, &approval).await;
            (id, approved)
        }
        EgressCommand::Deny { id } => {
            let denied = requests.deny(&id).await;
            (id, denied)
        }
        EgressCommand::Forget { id } => {
            let deleted = requests.delete(&id).await;
            deleted.map_err(|error| explain_missing(error, &id, connection))?;
            output.note("forgotten: the next attempt asks again");
            return Ok(());
        }
    };
    let request = decided.map_err(|error| explain_missing(error, &id, connection))?;
    output.item(&request, &row(&request))
}

/// Adds advice to an error about a request.
fn explain_missing(error: Error, id: &str, connection: &Connection) -> anyhow::Error {
    if error.refusal().is_some_and(|refusal| refusal.status == 404) {
        let id = plain(id, 100);
        anyhow::anyhow!("there is no request {id}: `agent-workspace egress list` lists all")
    } else {
        connection.explain(error)
    }
}

fn row(request: &EgressRequest) -> String {
    format!(
        "{:32}  {:20}  {:20}  {}:{}",
        plain(&request.id, 36),
        plain(request.decision.as_str(), 20),
        seconds(request.created_at),
        plain(&request.host, 255),
        request.port,
    )
}
