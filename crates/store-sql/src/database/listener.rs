//! Sends and receives Postgres' notifications for [`super::changes`].

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Array, Integer, Text};
use domain::coordination::change::StoreChange;
use domain::id::{ConversationId, HostId, SandboxId, StartTaskId};
use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use crate::database::connection::{AnyConnection, ConnectionManager, Target};
use crate::database::hints::PendingHints;

const CHANGES_CHANNEL: &str = "agent_workspace";
const EVENTS_CHANNEL: &str = "agent_workspace_events";
/// Interval at which the listener reads notifications and sends hints; diesel cannot wait for a notification.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Conversations in one notification: a payload holds less than 8000 bytes, and an id takes 33.
const MAX_IDS_PER_NOTIFICATION: usize = 200;
/// Pause between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Connects and starts to listen. Blocks.
pub(super) fn start(
    target: &Target,
    (sender, pending): (broadcast::Sender<StoreChange>, PendingHints),
    runtime: &Handle,
) -> AbortHandle {
    let connection = connect(target);
    let listener = listen(
        target.clone(),
        connection,
        (sender, pending),
        runtime.clone(),
    );
    runtime.spawn(listener).abort_handle()
}

/// Notifies of a change once the transaction commits.
pub(super) fn notify(conn: &mut PgConnection, change: &StoreChange) -> QueryResult<usize> {
    diesel::sql_query("SELECT pg_notify($1, $2)")
        .bind::<Text, _>(CHANGES_CHANNEL)
        .bind::<Text, _>(encode_change(change))
        .execute(conn)
}

/// Connects and listens; reconnects after a lost connection.
async fn listen(
    target: Target,
    mut connection: Option<ListenConnection>,
    (sender, pending): (broadcast::Sender<StoreChange>, PendingHints),
    runtime: Handle,
) {
    loop {
        if let Some(mut listening) = connection {
            // Earlier changes are unknown. `send` fails without subscribers, which is fine.
            let _ = sender.send(StoreChange::Gap);
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let hints =
                    std::mem::take(&mut *pending.lock().unwrap_or_else(PoisonError::into_inner));
                let exchanged = runtime
                    .spawn_blocking(move || exchange(listening, &hints))
                    .await;
                let Ok(Some((returned, changes))) = exchanged else {
                    tracing::warn!(
                        "lost the connection that receives other processes' changes; reconnecting"
                    );
                    break;
                };
                listening = returned;
                for change in changes {
                    let _ = sender.send(change);
                }
            }
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
        let target = target.clone();
        let attempt = runtime.spawn_blocking(move || connect(&target)).await;
        connection = attempt.unwrap_or_default();
    }
}

struct ListenConnection {
    conn: PgConnection,
    /// Process id of the connection at the server.
    process: i32,
}

fn connect(target: &Target) -> Option<ListenConnection> {
    let connection = ConnectionManager(target.clone()).establish();
    let Ok(AnyConnection::Postgres(mut conn)) = connection else {
        return None;
    };
    let process = diesel::select(diesel::dsl::sql::<Integer>("pg_backend_pid()"));
    let process = process.get_result(&mut conn).ok()?;
    // Notifications need not survive a crash of the database, so commits need not wait for its disk.
    let set_up =
        format!("LISTEN {CHANGES_CHANNEL}; LISTEN {EVENTS_CHANNEL}; SET synchronous_commit = off");
    conn.batch_execute(&set_up).ok()?;
    Some(ListenConnection { conn, process })
}

/// Sends hints and reads notifications. `None` when the connection is lost.
fn exchange(
    mut listening: ListenConnection,
    hints: &BTreeSet<ConversationId>,
) -> Option<(ListenConnection, Vec<StoreChange>)> {
    if !hints.is_empty() {
        send_hints(&mut listening.conn, hints).ok()?;
    }
    let mut changes = Vec::new();
    for notification in listening.conn.notifications_iter() {
        let notification = notification.ok()?;
        if notification.channel == CHANGES_CHANNEL {
            changes.extend(decode_change(&notification.payload));
        } else if notification.process_id != listening.process {
            changes.push(StoreChange::Events(decode_ids(&notification.payload)));
        }
    }
    Some((listening, changes))
}

fn send_hints(
    conn: &mut PgConnection,
    conversations: &BTreeSet<ConversationId>,
) -> QueryResult<usize> {
    let ids: Vec<_> = conversations.iter().copied().collect();
    let payloads: Vec<String> = ids
        .chunks(MAX_IDS_PER_NOTIFICATION)
        .map(encode_ids)
        .collect();
    diesel::sql_query("SELECT pg_notify($1, payload) FROM unnest($2) AS payload")
        .bind::<Text, _>(EVENTS_CHANNEL)
        .bind::<Array<Text>, _>(payloads)
        .execute(conn)
}

/// One id per line.
fn encode_ids(ids: &[ConversationId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join("\n")
}

/// Skips invalid lines, because a newer release may send more.
fn decode_ids(text: &str) -> Vec<ConversationId> {
    text.split('\n').filter_map(|id| id.parse().ok()).collect()
}

/// The kind and the ids of a change, one per line. No id contains a line break.
fn encode_change(change: &StoreChange) -> String {
    match change {
        StoreChange::StartTaskQueued(host) => format!("start-waits\n{host}"),
        StoreChange::StartTask(id) => format!("start-task\n{id}"),
        StoreChange::Sandbox {
            id,
            host,
            is_wanted,
        } => {
            let wanted = if *is_wanted { "\nwanted" } else { "" };
            format!("sandbox\n{id}\n{host}{wanted}")
        }
        // `send_hints` notifies of events.
        StoreChange::Events(_) | StoreChange::Gap => "gap".to_owned(),
    }
}

/// Parses a notification. An unknown notification of a newer release is a gap.
fn decode_change(text: &str) -> Option<StoreChange> {
    let mut parts = text.split('\n');
    let known = match (parts.next()?, parts.next(), parts.next()) {
        ("start-waits", Some(host), None) => {
            HostId::parse(host).ok().map(StoreChange::StartTaskQueued)
        }
        ("start-task", Some(id), None) => {
            id.parse::<StartTaskId>().ok().map(StoreChange::StartTask)
        }
        ("sandbox", Some(id), Some(host)) => {
            let (id, host) = (SandboxId::parse(id).ok()?, HostId::parse(host).ok()?);
            // Earlier releases do not say it.
            let is_wanted = parts.next() == Some("wanted");
            Some(StoreChange::Sandbox {
                id,
                host,
                is_wanted,
            })
        }
        _ => None,
    };
    Some(known.unwrap_or(StoreChange::Gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_ids_survive_encoding() {
        let host = || HostId::parse("host-1").expect("valid id");
        let task = "0123456789abcdef0123456789abcdef"
            .parse()
            .expect("valid id");
        for change in [
            StoreChange::StartTaskQueued(host()),
            StoreChange::StartTask(task),
            StoreChange::Sandbox {
                id: SandboxId::parse("sandbox-1").expect("valid id"),
                host: host(),
                is_wanted: true,
            },
            StoreChange::Sandbox {
                id: SandboxId::parse("sandbox-2").expect("valid id"),
                host: host(),
                is_wanted: false,
            },
            StoreChange::Gap,
        ] {
            assert_eq!(decode_change(&encode_change(&change)), Some(change));
        }
        assert_eq!(decode_change("something new\nx"), Some(StoreChange::Gap));
        let ids: Vec<ConversationId> = (0..MAX_IDS_PER_NOTIFICATION)
            .map(|n| format!("{n:032x}").parse().expect("valid id"))
            .collect();
        let text = encode_ids(&ids);
        assert!(
            text.len() < 8_000,
            "the longest notification fits a payload"
        );
        assert_eq!(decode_ids(&text), ids);
    }
}
