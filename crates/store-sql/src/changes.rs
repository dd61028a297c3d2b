//! `ChangeFeed`: what other processes commit to the same Postgres comes by `LISTEN`.
//!
//! The notification is part of the transaction that makes the change, so nobody hears of what is not there. Our own come
//! back, too: acting on one is a look at a row that is as it should be.
#![cfg_attr(
    not(feature = "postgres"),
    expect(
        unused_imports,
        unused_variables,
        clippy::unnecessary_wraps,
        reason = "SQLite has nobody to tell"
    )
)]
#![cfg_attr(
    not(any(feature = "postgres", test)),
    expect(dead_code, reason = "as above")
)]

use std::time::Duration;

use diesel::prelude::*;
use domain::change::{Change, ChangeFeed};
use domain::id::{ConversationId, HostId, SandboxId, StartTaskId};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::AbortHandle;

use crate::connection::{AnyConnection, Target};
use crate::error::Fault;
use crate::store::SqlStore;

/// Changes that a slow follower may miss before it is told of a gap.
const CAPACITY: usize = 1024;
#[cfg(feature = "postgres")]
const CHANNEL: &str = "agent_workspace";
/// How often it is looked whether something came: diesel offers no way to wait for the connection.
#[cfg(feature = "postgres")]
const LOOK: Duration = Duration::from_millis(50);
/// Between two tries to connect.
#[cfg(feature = "postgres")]
const RECONNECT: Duration = Duration::from_secs(1);

/// Where followers get changes from. Silent for `SQLite`, whose file belongs to one process.
pub(crate) struct Changes {
    sender: broadcast::Sender<Change>,
    listener: Option<AbortHandle>,
}

impl Changes {
    /// Begins to listen. Blocking.
    pub(crate) fn of(target: &Target, runtime: &Handle) -> Self {
        let (sender, _) = broadcast::channel(CAPACITY);
        let listener = match target {
            Target::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => {
                let (target, sender) = (target.clone(), sender.clone());
                let listening = connect(&target);
                let task = runtime.spawn(listen(target, listening, sender, runtime.clone()));
                Some(task.abort_handle())
            }
        };
        Self { sender, listener }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

impl ChangeFeed for SqlStore {
    fn changes(&self) -> BoxStream<'static, Change> {
        stream::unfold(self.changes.sender.subscribe(), |mut changes| async move {
            match changes.recv().await {
                Ok(change) => Some((change, changes)),
                Err(RecvError::Lagged(_)) => Some((Change::Gap, changes)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}

/// Tells all processes on this database, once the transaction is committed.
pub(crate) fn announce(conn: &mut AnyConnection, change: &Change) -> Result<(), Fault> {
    match conn {
        AnyConnection::Sqlite(_) => {}
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => {
            diesel::sql_query("SELECT pg_notify($1, $2)")
                .bind::<diesel::sql_types::Text, _>(CHANNEL)
                .bind::<diesel::sql_types::Text, _>(written(change))
                .execute(conn)?;
        }
    }
    Ok(())
}

/// Connects, listens, and begins again when the connection is lost.
#[cfg(feature = "postgres")]
async fn listen(
    target: Target,
    mut connected: Option<diesel::PgConnection>,
    sender: broadcast::Sender<Change>,
    runtime: Handle,
) {
    loop {
        if let Some(mut conn) = connected {
            // What happened before is unknown. Nobody may be there to hear it.
            let _ = sender.send(Change::Gap);
            let mut look = tokio::time::interval(LOOK);
            look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                look.tick().await;
                let arrived = runtime.spawn_blocking(move || drain(conn)).await;
                let Ok(Some((back, changes))) = arrived else {
                    tracing::warn!("lost the connection on which other processes are heard");
                    break;
                };
                conn = back;
                for change in changes {
                    let _ = sender.send(change);
                }
            }
        }
        tokio::time::sleep(RECONNECT).await;
        let to = target.clone();
        let tried = runtime.spawn_blocking(move || connect(&to)).await;
        connected = tried.unwrap_or_default();
    }
}

#[cfg(feature = "postgres")]
fn connect(target: &Target) -> Option<diesel::PgConnection> {
    use diesel::connection::SimpleConnection;
    let connected = crate::connection::Manager::new(target.clone()).establish();
    let Ok(AnyConnection::Postgres(mut conn)) = connected else {
        return None;
    };
    let listens = conn.batch_execute(&format!("LISTEN {CHANNEL}"));
    listens.is_ok().then_some(conn)
}

/// What has arrived; `None` when the connection is gone.
#[cfg(feature = "postgres")]
fn drain(mut conn: diesel::PgConnection) -> Option<(diesel::PgConnection, Vec<Change>)> {
    let mut changes = Vec::new();
    for notification in conn.notifications_iter() {
        changes.extend(read(&notification.ok()?.payload));
    }
    Some((conn, changes))
}

/// Kind and ids, one a line: none of them has a line break.
fn written(change: &Change) -> String {
    match change {
        Change::StartWaits(host) => format!("start-waits\n{host}"),
        Change::StartTask(id) => format!("start-task\n{id}"),
        Change::Events(id) => format!("events\n{id}"),
        Change::Sandbox { id, host } => format!("sandbox\n{id}\n{host}"),
        Change::Gap => "gap".to_owned(),
    }
}

/// A newer release may say what we do not know: then something changed.
fn read(text: &str) -> Option<Change> {
    let mut parts = text.split('\n');
    let known = match (parts.next()?, parts.next(), parts.next()) {
        ("start-waits", Some(host), None) => HostId::parse(host).ok().map(Change::StartWaits),
        ("events", Some(id), None) => id.parse::<ConversationId>().ok().map(Change::Events),
        ("start-task", Some(id), None) => id.parse::<StartTaskId>().ok().map(Change::StartTask),
        ("sandbox", Some(id), Some(host)) => {
            let (id, host) = (SandboxId::parse(id).ok()?, HostId::parse(host).ok()?);
            Some(Change::Sandbox { id, host })
        }
        _ => None,
    };
    Some(known.unwrap_or(Change::Gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let host = || HostId::parse("host-1").expect("an id");
        let task = "0123456789abcdef0123456789abcdef".parse().expect("an id");
        for change in [
            Change::StartWaits(host()),
            Change::StartTask(task),
            Change::Sandbox {
                id: SandboxId::parse("sandbox-1").expect("an id"),
                host: host(),
            },
            Change::Gap,
        ] {
            assert_eq!(read(&written(&change)), Some(change));
        }
        assert_eq!(read("something new\nx"), Some(Change::Gap));
    }
}
