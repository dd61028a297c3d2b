//! The command `automations`.

use std::fmt::Write as _;

use client::{Automation, AutomationRun, Error};

use super::args::AutomationsCommand;
use super::connect::Connection;
use super::output::{CommandOutput, plain};

const TABLE_HEADER: &str = "ID                                    STATE     TRIGGER               LAST TRIGGERED        NAME";
const RUN_TABLE_HEADER: &str =
    "RUN                                   STATUS     CREATED               DETAIL";

pub(super) async fn run(
    command: AutomationsCommand,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let automations = connection.client.automations();
    match command {
        AutomationsCommand::List { limit } => {
            let page = automations.list(limit, 0).await;
            let page = page.map_err(|error| connection.explain(error))?;
            let rows = page.automations.iter().map(row);
            output.item(&page, &table(TABLE_HEADER, rows))?;
            if page.total > page.automations.len() as u64 {
                output.note("the list has more items: use --limit");
            }
            Ok(())
        }
        AutomationsCommand::Run { id } => {
            let started = automations.run(&id).await;
            let started = started.map_err(|error| explain_missing(error, &id, connection))?;
            let line = format!("run  {}  {}", started.id, plain(&started.status, 20));
            output.item(&started, &line)
        }
        AutomationsCommand::Logs { id, limit } => {
            let page = automations.runs(&id, limit).await;
            let page = page.map_err(|error| explain_missing(error, &id, connection))?;
            let rows = page.runs.iter().map(run_row);
            output.item(&page, &table(RUN_TABLE_HEADER, rows))
        }
    }
}

/// Adds advice to an error about an automation.
fn explain_missing(error: Error, id: &str, connection: &Connection) -> anyhow::Error {
    if error.refusal().is_some_and(|refusal| refusal.status == 404) {
        let id = plain(id, 100);
        anyhow::anyhow!("there is no automation {id}: `agent-workspace automations list` lists all")
    } else {
        connection.explain(error)
    }
}

fn table(head: &str, rows: impl Iterator<Item = String>) -> String {
    let mut text = head.to_owned();
    for row in rows {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}", row.trim_end());
    }
    text
}

fn row(automation: &Automation) -> String {
    let member = |name: &str| automation.trigger[name].as_str().unwrap_or_default();
    let trigger = match member("type") {
        "cron" => member("schedule"),
        "event" => member("source"),
        other => other,
    };
    let state = match (automation.enabled, &automation.disabled_reason) {
        (true, _) => "enabled",
        (false, None) => "disabled",
        (false, Some(_)) => "failed",
    };
    format!(
        "{:36}  {state:8}  {:20}  {:20}  {}",
        plain(&automation.id, 36),
        plain(trigger, 20),
        seconds(automation.last_triggered_at.as_deref()),
        plain(&automation.name, 100),
    )
}

fn run_row(run: &AutomationRun) -> String {
    let detail = match (&run.error_detail, &run.conversation_id) {
        (Some(error), _) => plain(error, 300),
        (None, Some(conversation)) => format!("conversation {}", plain(conversation, 40)),
        (None, None) => plain(run.current_phase.as_deref().unwrap_or_default(), 200),
    };
    format!(
        "{:36}  {:9}  {:20}  {detail}",
        plain(&run.id, 36),
        plain(&run.status, 9),
        seconds(Some(&run.created_at)),
    )
}

/// A time without fractions of a second.
fn seconds(at: Option<&str>) -> String {
    let at = at.unwrap_or("never");
    let whole = at.split_once('.').map_or(at, |(whole, _)| whole);
    plain(whole, 20)
}
