//! The command `conversations`.

use std::io::Read as _;

use anyhow::{Context as _, bail};
use client::{
    Conversation, ConversationFilter, Error, FollowFrom, FollowItem, IdempotencyKey, Message,
    StartRequest, StartTask,
};
use futures::TryStreamExt as _;

use super::args::{ConversationsCommand, StartArgs};
use super::connect::Connection;
use super::event_line;
use super::output::{CommandOutput, plain};
use super::sandboxes::{seconds, show_list};

const MAX_MESSAGE_BYTES: u64 = 1 << 20;

const TABLE_HEADER: &str =
    "ID                                EXECUTION  SANDBOX   UPDATED               TITLE";

pub(super) async fn run(
    command: ConversationsCommand,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    match command {
        ConversationsCommand::Start(options) => start(*options, connection, output).await,
        ConversationsCommand::List(listing) => {
            let conversations = connection.client.conversations();
            let filter = ConversationFilter::default();
            let page = conversations.search(&filter, listing.limit, None);
            let (table, all) = ((TABLE_HEADER, row as _), conversations.all(&filter));
            let shown = show_list(&listing, table, page, all, (connection, output));
            Box::pin(shown).await
        }
        ConversationsCommand::Follow(options) => {
            let found = connection.client.conversations().get(&options.id).await;
            if found.map_err(|error| connection.explain(error))?.is_none() {
                bail!(
                    "there is no conversation {}: `agent-workspace conversations list` lists all",
                    options.id
                );
            }
            let from = if options.from_now {
                FollowFrom::Now
            } else {
                FollowFrom::Start
            };
            follow(&options.id, from, connection, output).await
        }
    }
}

async fn start(
    start: StartArgs,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let message = match start.message.as_deref() {
        Some("-") => Some(from_stdin()?),
        other => other.map(str::to_owned),
    };
    let request = StartRequest {
        initial_message: message.map(Message::text),
        selected_repository: start.repository,
        selected_branch: start.branch,
        title: start.title,
        llm_model: start.model,
        sandbox_id: start.sandbox,
        egress_allow: start.egress_allow,
        ..StartRequest::default()
    };
    if !start.wait && !start.follow {
        let task = connection.client.conversations().start(&request).await;
        let task = task.map_err(|error| connection.explain(error))?;
        let id = task.app_conversation_id.as_deref();
        let id = id.unwrap_or("not assigned yet");
        let line = format!(
            "conversation  {id}\nstart         {}  {}",
            task.id, task.status
        );
        return output.item(&task, &line);
    }
    let mut progress = StartProgressPrinter { output, last: None };
    wait(&request, connection, &mut progress)
        .await
        .map_err(|error| connection.explain(error))?;
    let task = progress
        .last
        .context("the service reported no state of the start: try again, or update this program")?;
    let id = task.app_conversation_id.clone().unwrap_or_default();
    let sandbox = task.sandbox_id.as_deref().unwrap_or_default();
    output.item(
        &task,
        &format!("conversation  {id}\nsandbox       {sandbox}"),
    )?;
    if task.status != "READY" {
        let cause = plain(task.detail.as_deref().unwrap_or("no cause given"), 2000);
        bail!("the conversation did not start: {cause}");
    }
    if start.follow {
        return follow(&id, FollowFrom::Start, connection, output).await;
    }
    Ok(())
}

fn from_stdin() -> anyhow::Result<String> {
    let mut message = String::new();
    let mut limited = std::io::stdin().lock().take(MAX_MESSAGE_BYTES + 1);
    limited
        .read_to_string(&mut message)
        .context("cannot read the message from standard input")?;
    if message.len() as u64 > MAX_MESSAGE_BYTES {
        bail!("the message on standard input is longer than {MAX_MESSAGE_BYTES} bytes: shorten it");
    }
    if message.trim().is_empty() {
        bail!("standard input contains no message: write one, or use --message TEXT");
    }
    Ok(message)
}

/// Prints the progress of a start with the seconds since the request.
struct StartProgressPrinter<'a> {
    output: &'a CommandOutput,
    last: Option<StartTask>,
}

impl StartProgressPrinter<'_> {
    fn print(&mut self, now: StartTask) {
        let visible = |task: &StartTask| (task.status.clone(), task.detail.clone());
        if self.last.as_ref().map(visible) != Some(visible(&now)) {
            let seconds = (now.updated_at.0 - now.created_at.0).as_seconds_f64();
            let detail = plain(now.detail.as_deref().unwrap_or_default(), 200);
            let line = format!("{seconds:6.1} s  {:22}  {detail}", now.status);
            self.output.note(line.trim_end());
        }
        let printed = self.last.as_ref().map_or(0, |last| last.notes.len());
        for note in now.notes.iter().skip(printed) {
            let note = plain(note, 500);
            self.output.note(&format!("          note: {note}"));
        }
        self.last = Some(now);
    }
}

/// Starts a conversation and prints each state. If the stream of states ends or stays silent, the start continues, and the
/// command polls it.
async fn wait(
    request: &StartRequest,
    connection: &Connection,
    progress: &mut StartProgressPrinter<'_>,
) -> Result<(), Error> {
    let conversations = connection.client.conversations();
    let key = IdempotencyKey::random();
    let streamed = async {
        let states = conversations.stream_start(request, &key).await?;
        let mut states = std::pin::pin!(states);
        while let Some(state) = states.try_next().await? {
            progress.print(state);
        }
        Ok(())
    };
    match streamed.await {
        Err(error) if Error::is_uncertain(&error) => {}
        ended => return ended,
    }
    let id = match &progress.last {
        Some(task) => task.id.clone(),
        None => conversations.start_once(request, &key).await?.id,
    };
    let tasks = connection.client.start_tasks();
    let mut states = std::pin::pin!(tasks.watch(&id));
    while let Some(state) = states.try_next().await? {
        progress.print(state);
    }
    Ok(())
}

async fn follow(
    id: &str,
    from: FollowFrom,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let events = connection.client.events(id);
    let mut all = std::pin::pin!(events.follow(from, None));
    while let Some(next) = all
        .try_next()
        .await
        .map_err(|error| connection.explain(error))?
    {
        match next {
            FollowItem::Event { event, .. } => {
                output.item(&event, &event_line::summarize(&event))?;
            }
            FollowItem::Ended { reason } => {
                output.note(&format!("no more events: {}", plain(&reason, 200)));
            }
        }
    }
    Ok(())
}

fn row(conversation: &Conversation) -> String {
    let execution = conversation.execution_status.as_ref();
    format!(
        "{:32}  {:9}  {:8}  {:20}  {}",
        conversation.id,
        plain(execution.map_or("-", client::ExecutionStatus::as_str), 24),
        conversation.sandbox_status,
        seconds(conversation.updated_at),
        plain(conversation.title.as_deref().unwrap_or_default(), 100),
    )
}
