//! Calls of git hosts: git's smart HTTP protocol and its large files (LFS).
//!
//! The caller of [`GitBroker::call`] has checked who calls, and has the host with its credentials.

mod headers;
mod large_files;
mod paths;
mod push;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use domain::error::BoxError;
use domain::git::CloneSource;
use domain::git_rights::{PushRights, RepositoryRights};
use domain::id::SandboxId;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use hyper::{Method, Response, body::Incoming};
use outbound_http::{
    CaCertificates, ClientOptions, HostGuard, HttpClient, PrivateHosts, RequestSlot, RequestSlots,
    SendError, read_body,
};
use tokio::time::timeout;

use self::paths::GitOperation;
pub use self::paths::GitRequest;
pub use self::push::{Push, RefUpdate};
use crate::relay::{AnswerBody, CallBody, CallCounters, CallCounts, IncompleteBody, OpenCall};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Hooks of a host run before it answers a push.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20 * 60);
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
const SLOT_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_CALLS: usize = 512;
const MAX_CALLS_PER_SANDBOX: usize = 16;
const MAX_IDLE_CONNECTIONS_PER_HOST: usize = 8;
/// Most bytes of a request, such as a pushed pack.
const MAX_REQUEST_BYTES: u64 = 4 << 30;
/// Most bytes of an answer, such as a cloned pack.
const MAX_ANSWER_BYTES: u64 = 16 << 30;
/// Most bytes of a list of large files in an answer, and in a request where the rights are to read. Each is read whole.
const MAX_LIST_BYTES: usize = 4 << 20;
const MAX_ASKED_LIST_BYTES: usize = 1 << 20;

/// Why a call failed. The texts are for the agent and its owner; none contains a token.
#[derive(Debug, thiserror::Error)]
pub enum GitCallError {
    /// git does not send this, or the service does not forward it.
    #[error("the service forwards clones, fetches, pushes and large files (LFS) only")]
    UnknownOperation,
    /// The token, or a header of the sandbox, is no header value.
    #[error(
        "the token contains characters that no header may have; store it again in the settings"
    )]
    InvalidHeader,
    /// The repository is none of those that agents may write to.
    #[error(
        "agents may not write to this repository, because no conversation of the sandbox began with it"
    )]
    OtherRepository,
    /// Nothing may be pushed.
    #[error("agents may only read this repository")]
    ReadOnly,
    /// The references of a push are limited, and it does not show them.
    #[error(
        "the service cannot read which branches this push changes: it is signed or compressed, or changes too many"
    )]
    UnreadablePush,
    /// The push changes other references than allowed.
    #[error("{0}")]
    RefusedPush(String),
    /// The caller ended its request early, or paused too long.
    #[error("the request broke off")]
    Incomplete,
    /// No slot became free.
    #[error("too many git commands run at the same time; repeat the command later")]
    Busy,
    /// The address is not allowed.
    #[error("the service does not call the host: {0}")]
    Forbidden(String),
    /// The host does not accept the token. Without a token: it requires one.
    #[error("the host does not accept the stored token; store a valid one in the settings")]
    Denied,
    /// The host requires a token, and the service sends it for other repositories only.
    #[error(
        "the host requires a token here, and the service sends it only for repositories with which conversations of the sandbox began"
    )]
    TokenWithheld,
    /// There is no connection.
    #[error("the service cannot reach the host")]
    Unreachable(#[source] SendError),
    /// The connection broke before the answer, or the request is incomplete.
    #[error("the host closed the connection before its answer")]
    Broken(#[source] SendError),
    /// The list of large files cannot be read.
    #[error("the host's list of large files is not valid, or too long")]
    InvalidList,
    /// A deadline has passed.
    #[error("the host did not answer in time")]
    TimedOut,
    /// Redirects to other places are not followed.
    #[error(
        "the host redirects to another address, and the token is not sent there; use the present address of the repository"
    )]
    Redirected,
}

/// A call of git in a sandbox.
#[derive(Debug)]
pub struct GitCall<'a> {
    /// The caller, which has a limit of its own.
    pub sandbox: &'a SandboxId,
    /// The base of all repositories of the host, and its credentials.
    pub host: &'a CloneSource,
    /// The same base as the sandbox sees it, without a slash at its end.
    pub address: &'a str,
    /// What is asked for.
    pub request: &'a GitRequest,
    /// What the sandbox may do in the repository of the request.
    pub rights: &'a RepositoryRights,
    /// The method of the request.
    pub method: &'a str,
    /// The path below the base, as it was sent.
    pub path: &'a str,
    /// The query, as it was sent.
    pub query: &'a str,
    /// The headers of the request; those that may not pass are left out.
    pub headers: &'a [(String, Vec<u8>)],
    /// The body of the request.
    pub body: CallBody,
}

/// The answer of a host.
#[derive(Debug)]
pub struct GitAnswer {
    /// Any status but 401.
    pub status: u16,
    /// The headers that pass to the sandbox.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: GitAnswerBody,
    /// What was pushed or, with a refusal, was not. `None` if nothing was, or what is not known.
    pub push: Option<Push>,
}

/// The body of an answer.
#[derive(Debug)]
pub enum GitAnswerBody {
    /// It comes from the host.
    Streamed(AnswerBody),
    /// It was changed.
    Whole(Vec<u8>),
}

/// Calls git hosts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GitBroker {
    client: HttpClient,
    slots: RequestSlots,
    counters: Arc<CallCounters>,
}

impl GitBroker {
    /// Most bytes of a request.
    pub const MAX_REQUEST_BYTES: u64 = MAX_REQUEST_BYTES;
    /// Longest pause within a request.
    pub const IDLE_TIMEOUT: Duration = IDLE_TIMEOUT;

    /// Connects to nothing yet. Beside public addresses, `private_hosts` may be called.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn new(private_hosts: PrivateHosts, authorities: CaCertificates) -> Result<Self, BoxError> {
        let client = HttpClient::new(ClientOptions {
            authorities,
            guard: Some(HostGuard::new(private_hosts)),
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: IDLE_CONNECTION_TIMEOUT,
            max_idle_per_host: MAX_IDLE_CONNECTIONS_PER_HOST,
        })?;
        Ok(Self {
            client,
            slots: RequestSlots::new(MAX_CALLS, MAX_CALLS_PER_SANDBOX),
            counters: Arc::default(),
        })
    }

    /// For a worker thread: with connections of its own, and the limits and counters of this one.
    #[must_use]
    pub fn for_worker(&self) -> Self {
        Self {
            client: self.client.with_own_connections(),
            ..self.clone()
        }
    }

    /// Takes a snapshot of the counters.
    pub fn counts(&self) -> CallCounts {
        self.counters.snapshot()
    }

    /// Counts a call that was refused before [`GitBroker::call`].
    pub fn count_refusal(&self) {
        self.counters.count_refusal();
    }

    /// Makes a call with the host's credentials, and returns at the head of the answer.
    ///
    /// # Errors
    /// See [`GitCallError`].
    pub async fn call(&self, call: GitCall<'_>) -> Result<GitAnswer, GitCallError> {
        let open = OpenCall::new(&self.counters);
        let answer = self.call_counted(call, open).await;
        match &answer {
            Ok(answer) if answer.is_refusal() => self.counters.count_refusal(),
            Ok(_)
            | Err(GitCallError::Denied | GitCallError::TokenWithheld | GitCallError::Redirected) => {
                self.counters.count_answer();
            }
            Err(
                GitCallError::Unreachable(_)
                | GitCallError::Broken(_)
                | GitCallError::InvalidList
                | GitCallError::TimedOut,
            ) => self.counters.count_failure(),
            Err(_) => self.counters.count_refusal(),
        }
        answer
    }

    async fn call_counted(
        &self,
        mut call: GitCall<'_>,
        open: OpenCall,
    ) -> Result<GitAnswer, GitCallError> {
        let method = Method::from_bytes(call.method.as_bytes());
        let method = method.map_err(|_| GitCallError::UnknownOperation)?;
        let url = paths::url(&call.host.url, call.path, call.query);
        let url = url.ok_or(GitCallError::UnknownOperation)?;
        let credentials = headers::credentials(call.host).filter(|_| call.rights.has_token);
        let given = headers::of_call(credentials.as_deref(), call.headers);
        let mut given = given.ok_or(GitCallError::InvalidHeader)?;
        let operation = call.request.operation;
        if operation == GitOperation::ListOfLargeFiles {
            given.remove(ACCEPT_ENCODING);
        }
        // First, because what is read ahead of a body takes memory.
        let slot = timeout(SLOT_TIMEOUT, self.slots.take(call.sandbox)).await;
        let slot = slot.map_err(|_| GitCallError::Busy)?;
        let slot = slot.map_err(|_| GitCallError::Busy)?;
        check(operation, call.rights, &mut call.body).await?;
        let mut push = None;
        if operation == GitOperation::Push {
            push = push::read(&mut call.body).await?;
            let is_limited = call.rights.push != PushRights::All;
            // The host would read another list than the service.
            if is_limited && (push.is_none() || given.contains_key(CONTENT_ENCODING)) {
                return Err(GitCallError::UnreadablePush);
            }
            let refusal = |push: &Push| push.refused_by(&call.rights.push);
            if let Some(reason) = push.as_ref().and_then(refusal) {
                return refuse(push.unwrap_or_default(), reason, call.body).await;
            }
        }
        let sent = self.client.send_streaming(method, &url, given, call.body);
        let answer = timeout(ANSWER_TIMEOUT, sent).await;
        let answer = answer.map_err(|_| GitCallError::TimedOut)?;
        let answer = answer.map_err(|error| match error {
            SendError::Forbidden(reason) => GitCallError::Forbidden(reason.to_string()),
            SendError::InvalidUrl(_) => GitCallError::UnknownOperation,
            error @ SendError::NotConnected(_) => GitCallError::Unreachable(error),
            error @ SendError::Broken(_) => GitCallError::Broken(error),
        })?;
        let at = Place {
            host: call.host,
            address: call.address,
            credentials,
        };
        let mut answer = at.answer(operation, answer, (slot, open)).await?;
        answer.push = push.filter(|push| !push.updates.is_empty());
        Ok(answer)
    }
}

/// Refuses writing where the rights are to read.
async fn check(
    operation: GitOperation,
    rights: &RepositoryRights,
    body: &mut CallBody,
) -> Result<(), GitCallError> {
    if !rights.is_read_only() {
        return Ok(());
    }
    let is_write = match operation {
        GitOperation::Read | GitOperation::ReadLargeFile => false,
        GitOperation::PushBegin | GitOperation::Push | GitOperation::WriteLargeFile => true,
        GitOperation::ListOfLargeFiles => {
            let more = async {
                while body.ahead().len() <= MAX_ASKED_LIST_BYTES && body.read_ahead().await? {}
                Ok::<(), IncompleteBody>(())
            };
            let read = timeout(IDLE_TIMEOUT, more).await;
            let is_read = matches!(read, Ok(Ok(()))) && body.ahead().len() <= MAX_ASKED_LIST_BYTES;
            !is_read || !large_files::is_download(body.ahead())
        }
    };
    match (is_write, rights.has_token) {
        (false, _) => Ok(()),
        (true, true) => Err(GitCallError::ReadOnly),
        (true, false) => Err(GitCallError::OtherRepository),
    }
}

/// Answers a push as a host that accepts none of its references. git reads the answer once it has sent everything.
async fn refuse(mut push: Push, reason: String, body: CallBody) -> Result<GitAnswer, GitCallError> {
    let Some(report) = push.report(&reason) else {
        return Err(GitCallError::RefusedPush(reason));
    };
    body.discard().await.map_err(|_| GitCallError::Incomplete)?;
    push.refusal = Some(reason);
    let kind = b"application/x-git-receive-pack-result".to_vec();
    Ok(GitAnswer {
        status: hyper::StatusCode::OK.as_u16(),
        headers: vec![(CONTENT_TYPE.as_str().to_owned(), kind)],
        body: GitAnswerBody::Whole(report),
        push: Some(push),
    })
}

impl GitAnswer {
    /// Whether it is the service's own.
    fn is_refusal(&self) -> bool {
        self.push
            .as_ref()
            .is_some_and(|push| push.refusal.is_some())
    }
}

/// The host of a call, on both sides.
struct Place<'a> {
    host: &'a CloneSource,
    address: &'a str,
    credentials: Option<String>,
}

impl Place<'_> {
    async fn answer(
        &self,
        operation: GitOperation,
        answer: Response<Incoming>,
        held: (RequestSlot, OpenCall),
    ) -> Result<GitAnswer, GitCallError> {
        let status = answer.status();
        if status.is_informational() {
            return Err(GitCallError::Redirected);
        }
        // git would ask its user for another password.
        if status == hyper::StatusCode::UNAUTHORIZED {
            return Err(match self.credentials {
                None if self.host.token.is_some() => GitCallError::TokenWithheld,
                _ => GitCallError::Denied,
            });
        }
        let mut passed = headers::of_answer(answer.headers());
        if status.is_redirection() && status != hyper::StatusCode::NOT_MODIFIED {
            let to = answer.headers().get(LOCATION);
            let to = to.and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| paths::moved(self.host, self.address, to));
            let to = to.ok_or(GitCallError::Redirected)?;
            passed.push((LOCATION.as_str().to_owned(), to.into_bytes()));
        }
        let body = if operation == GitOperation::ListOfLargeFiles && status.is_success() {
            // It names addresses, and some hosts repeat the credentials in it.
            let list = timeout(IDLE_TIMEOUT, read_body(answer.into_body(), MAX_LIST_BYTES)).await;
            let list = list.map_err(|_| GitCallError::TimedOut)?;
            let list = list.map_err(|_| GitCallError::InvalidList)?;
            let changed = large_files::through_the_service(
                &list,
                &self.host.url,
                self.address,
                self.credentials.as_deref(),
            );
            passed.retain(|(name, _)| name != "content-encoding" && name != CONTENT_TYPE.as_str());
            let kind = b"application/vnd.git-lfs+json".to_vec();
            passed.push((CONTENT_TYPE.as_str().to_owned(), kind));
            GitAnswerBody::Whole(changed.ok_or(GitCallError::InvalidList)?)
        } else {
            GitAnswerBody::Streamed(AnswerBody {
                body: answer.into_body(),
                held,
                idle_timeout: IDLE_TIMEOUT,
                max_bytes: MAX_ANSWER_BYTES,
            })
        };
        Ok(GitAnswer {
            status: status.as_u16(),
            headers: passed,
            body,
            push: None,
        })
    }
}
