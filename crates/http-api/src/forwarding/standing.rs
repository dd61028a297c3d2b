//! Whether a socket or an answer may go on: for as long as whoever opened it could open it again.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use application::AppError;
use application::gateway::Way;
use domain::id::{ConversationId, SandboxId};
use domain::scope::Scope;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::extract::{Actor, Application};
use crate::state::HttpState;

/// Longest wait for the answer. A store that does not answer closes nothing.
const ANSWER: Duration = Duration::from_secs(5);

/// Sockets that were opened in the same moment (all of them after a restart) ask at so many different times.
const TIMES: u32 = 32;

/// Over when `is_over` says so, which is asked in intervals. Boxed: thousands of sockets wait, and few of them ask.
pub(crate) fn end_when(
    every: Duration,
    is_over: impl Fn() -> LocalBoxFuture<'static, bool> + 'static,
) -> LocalBoxFuture<'static, ()> {
    async move {
        let mut ask = interval_at(Instant::now() + first(every), every);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ask.tick().await;
            if timeout(ANSWER, is_over()).await == Ok(true) {
                return;
            }
        }
    }
    .boxed_local()
}

/// Until the first question: less than between two, and each time another part of that.
fn first(every: Duration) -> Duration {
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let turn = OPENED.fetch_add(1, Ordering::Relaxed) % TIMES + 1;
    every * turn / TIMES
}

/// By what a socket or an answer was opened, as far as it is asked for again.
pub(crate) enum Standing {
    /// By the key of this sandbox.
    Sandbox {
        /// The key.
        key: SecretString,
        /// Whose it was.
        sandbox: SandboxId,
    },
    /// By a user who may see this conversation.
    User {
        /// Who.
        actor: Actor,
        /// Their keys, of which one is enough; an open service wants none.
        keys: Vec<SecretString>,
        /// Which conversation.
        conversation: ConversationId,
        /// Where it ran.
        sandbox: SandboxId,
    },
    /// By nobody that we know, for a conversation that ran in this sandbox.
    Unchecked {
        /// Which conversation.
        conversation: ConversationId,
        /// Where it ran.
        sandbox: SandboxId,
    },
}

impl Standing {
    /// Over when the socket or the answer may not go on any more.
    pub(crate) fn end(self, app: Application, state: HttpState) -> LocalBoxFuture<'static, ()> {
        let every = state.limits().ask_sockets_again;
        let asked = Rc::new((self, app, state));
        end_when(every, move || {
            let asked = Rc::clone(&asked);
            async move { asked.0.is_over(&asked.1, &asked.2).await }.boxed_local()
        })
    }

    async fn is_over(&self, app: &Application, state: &HttpState) -> bool {
        match self {
            Self::Sandbox { key, sandbox } => match app.gateway.by_key(key.expose_secret()).await {
                Ok(way) => way.is_none_or(|way| way.sandbox != *sandbox),
                Err(error) => is_refused(&error),
            },
            Self::User {
                actor,
                keys,
                conversation,
                sandbox,
            } => {
                is_nobodys(state, actor, keys).await
                    || leads_elsewhere(app, &actor.scope(), *conversation, sandbox).await
            }
            Self::Unchecked {
                conversation,
                sandbox,
            } => leads_elsewhere(app, &Scope::System, *conversation, sandbox).await,
        }
    }
}

/// Whether none of the keys is this user's any more.
async fn is_nobodys(state: &HttpState, actor: &Actor, keys: &[SecretString]) -> bool {
    let authenticator = state.authenticator();
    let keyless = keys.is_empty().then_some(None);
    for key in keys.iter().map(Some).chain(keyless) {
        match authenticator.user(key).await {
            Ok(Some(it)) if it.user != actor.user => {}
            Ok(None) => {}
            // It is, or nobody can tell at the moment.
            _ => return false,
        }
    }
    true
}

async fn leads_elsewhere(
    app: &Application,
    scope: &Scope,
    conversation: ConversationId,
    sandbox: &SandboxId,
) -> bool {
    let found = app.gateway.by_conversation(scope, conversation).await;
    match found {
        Ok(Way { sandbox: now, .. }) => now != *sandbox,
        Err(error) => is_refused(&error),
    }
}

/// Whether this is a rule of ours, and not a store that is out of reach.
fn is_refused(error: &AppError) -> bool {
    matches!(error, AppError::Refused { .. })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn sockets_of_one_moment_do_not_ask_in_step() {
        let every = Duration::from_secs(5);
        let all: HashSet<Duration> = (0..TIMES).map(|_| first(every)).collect();
        assert_eq!(all.len(), TIMES as usize);
        assert!(all.iter().all(|it| !it.is_zero() && *it <= every));
    }
}
