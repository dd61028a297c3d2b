//! The commands `sandboxes` and `specs`.

use std::fmt::Write as _;

use chrono::SecondsFormat;
use client::{Error, Page, Sandbox, Spec, UtcTime};
use futures::{Stream, TryStreamExt as _};
use serde::Serialize;

use super::args::{Listing, SandboxesCommand, SpecsCommand};
use super::connect::Connection;
use super::logs::{self, explain_missing};
use super::output::{CommandOutput, plain};

const TABLE_HEADER: &str = "ID                                STATUS    SPEC                              CREATED               DETAIL";

pub(super) async fn run(
    command: SandboxesCommand,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let sandboxes = connection.client.sandboxes();
    let id = match command {
        SandboxesCommand::List(listing) => {
            let page = sandboxes.search(listing.limit, None);
            let (table, all) = ((TABLE_HEADER, row as _), sandboxes.all());
            let shown = show_list(&listing, table, page, all, (connection, output));
            return Box::pin(shown).await;
        }
        SandboxesCommand::Pause { id } => {
            let result = sandboxes.pause(&id).await;
            result.map_err(|error| explain_missing(error, &id, connection))?;
            id
        }
        SandboxesCommand::Resume { id } => {
            let result = sandboxes.resume(&id).await;
            result.map_err(|error| explain_missing(error, &id, connection))?;
            id
        }
        SandboxesCommand::Logs(options) => return logs::run(&options, connection, output).await,
    };
    let current = sandboxes
        .get(&id)
        .await
        .map_err(|error| connection.explain(error))?;
    match current {
        Some(sandbox) => output.item(&sandbox, &format!("{id}  {}", sandbox.status)),
        None => anyhow::bail!("the sandbox {id} was deleted during this command"),
    }
}

pub(super) async fn specs(
    command: SpecsCommand,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let SpecsCommand::List(listing) = command;
    let specs = connection.client.specs();
    let head =
        "ID                                                CREATED               WORKING DIRECTORY";
    let (page, all) = (specs.search(listing.limit, None), specs.all());
    let shown = show_list(
        &listing,
        (head, spec_row as _),
        page,
        all,
        (connection, output),
    );
    Box::pin(shown).await
}

/// Prints one page of a list with a line for each item, or all items as they arrive.
pub(super) async fn show_list<T: Serialize>(
    listing: &Listing,
    (head, row): (&str, fn(&T) -> String),
    page: impl Future<Output = Result<Page<T>, Error>>,
    all: impl Stream<Item = Result<T, Error>>,
    (connection, output): (&Connection, &CommandOutput),
) -> anyhow::Result<()> {
    let explain = |error| connection.explain(error);
    if listing.all {
        let mut all = std::pin::pin!(all);
        let mut is_first = true;
        while let Some(item) = all.try_next().await.map_err(explain)? {
            if std::mem::take(&mut is_first) && !output.is_json {
                output.line(head)?;
            }
            output.item(&item, &row(&item))?;
        }
        return Ok(());
    }
    let page = page.await.map_err(explain)?;
    let mut text = head.to_owned();
    for item in &page.items {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}", row(item).trim_end());
    }
    output.item(&page, &text)?;
    if page.next_page_id.is_some() {
        output.note("the list has more items: use --limit or --all");
    }
    Ok(())
}

fn row(sandbox: &Sandbox) -> String {
    format!(
        "{:32}  {:8}  {:32}  {:20}  {}",
        sandbox.id,
        sandbox.status,
        plain(&sandbox.sandbox_spec_id, 32),
        seconds(sandbox.created_at),
        plain(sandbox.status_detail.as_deref().unwrap_or_default(), 120),
    )
}

fn spec_row(spec: &Spec) -> String {
    let (id, dir) = (plain(&spec.id, 100), plain(&spec.working_dir, 100));
    format!("{id:48}  {:20}  {dir}", seconds(spec.created_at))
}

/// Formats a time as `2026-01-31T12:00:00Z`.
pub(super) fn seconds(at: UtcTime) -> String {
    at.0.to_rfc3339_opts(SecondsFormat::Secs, true)
}
