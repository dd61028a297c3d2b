//! The git calls that the service makes for sandboxes, so that tokens of git hosts stay outside of them.
//!
//! ```text
//!   git ──call with the sandbox's token──► service ──call with the owner's token──► host
//! ```
//!
//! The configuration of git in a sandbox names the service in place of each host for which the owner has a token. The
//! owner's token is looked up for each call, so a replaced one takes effect at once. With `broker.git = false` the
//! configuration has the token, or its placeholder, and git calls the host itself.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use domain::conversation::ConversationReportRepository;
use domain::git::{CloneSource, CloneSourceResolver, GitProvider};
use domain::git_rights::RepositoryRights;
use domain::id::SandboxId;
use domain::page::{PageLimit, PageRequest};
use domain::sandbox::Sandbox;
use domain::start_task::{StartTaskFilter, StartTaskOrder, StartTaskRepository};
use domain::user::scope::Scope;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::accesses;
use super::rights::{GitPolicy, OwnBranch, place_of};
use crate::sandboxes::{SandboxTokenRefusal, SandboxTokens, TokenKind, service_url};
use crate::secrets::SecretsService;
use crate::settings::{Settings, SettingsService};
use crate::{AppError, GitCaller, Policy, Ports};

const GIT: TokenKind = TokenKind {
    prefix: "gb_",
    purpose: "git",
};

/// Conversations of a sandbox whose repositories its git may write to: the newest ones.
const MAX_CONVERSATIONS: usize = 100;

/// The header of a sandbox's token. git takes it from its configuration.
pub const GIT_TOKEN_HEADER: &str = "X-Access-Token";

/// Where a sandbox's git may go.
#[derive(Clone)]
pub struct SandboxGit(Arc<SandboxGitParts>);

struct SandboxGitParts {
    tokens: SandboxTokens,
    sources: Arc<dyn CloneSourceResolver>,
    settings: SettingsService,
    conversations: Arc<dyn ConversationReportRepository>,
    starts: Arc<dyn StartTaskRepository>,
    policy: GitPolicy,
    /// Makes tokens of hosts for sandboxes whose git calls the hosts itself; `None` if the service makes their calls.
    secrets: Option<SecretsService>,
    base: Url,
}

/// What a call may do.
#[derive(Debug)]
pub struct GitGrant<'a> {
    pub sandbox: SandboxId,
    /// The base of the host's repositories, and the owner's credentials.
    pub host: CloneSource,
    /// The same base as the sandbox sees it.
    pub address: String,
    /// The path below the base.
    pub path: &'a str,
    /// The host as it stands in `own`.
    place: String,
    own: Vec<OwnBranch>,
    policy: GitPolicy,
}

impl GitGrant<'_> {
    /// What the call may do in a repository, which is a path below the base without `.git`.
    pub fn rights_in(&self, repository: &str) -> RepositoryRights {
        let repository = format!("{}/{repository}", self.place);
        self.policy.rights_in(&repository, &self.own)
    }

    /// The repository as the audit log names it.
    pub fn name_of(&self, repository: &str) -> String {
        format!("{}/{repository}", self.place)
    }
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitRefusal {
    Token(SandboxTokenRefusal),
    /// The owner has no token for the host.
    UnknownHost,
}

impl SandboxGit {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        tokens: SandboxTokens,
        settings: SettingsService,
        secrets: &SecretsService,
    ) -> Self {
        Self(Arc::new(SandboxGitParts {
            secrets: (policy.git_caller == GitCaller::Sandbox).then(|| secrets.clone()),
            tokens,
            sources: Arc::clone(&ports.clone_sources),
            settings,
            conversations: Arc::clone(&ports.conversation_reports),
            starts: Arc::clone(&ports.start_tasks),
            policy: policy.git.clone(),
            base: service_url(&policy.webhook_url, "git"),
        }))
    }

    /// What a call with this token may do at a place, which is the path of the call after `/git/`. Costs at most two
    /// queries, and two more where a limit depends on the conversations of the sandbox.
    pub async fn open<'a>(
        &self,
        token: &str,
        place: &'a str,
    ) -> Result<Result<GitGrant<'a>, GitRefusal>, AppError> {
        let sandbox = match self.0.tokens.open(GIT, token).await? {
            Ok((sandbox, _)) => sandbox,
            Err(refusal) => return Ok(Err(GitRefusal::Token(refusal))),
        };
        let settings = self.0.settings.load(&sandbox.owner).await?;
        let settings = settings.unwrap_or_default();
        let own = accesses(&settings);
        let hosts = own.iter().filter_map(|access| {
            let host = self.0.sources.host(access).ok()?;
            let name = place_of(&host.url);
            let path = place.strip_prefix(&name)?.strip_prefix('/')?;
            Some((host, name, path))
        });
        // One machine may have a host at its root and another one below a path.
        let nearest = hosts.max_by_key(|(_, name, _)| name.len());
        let Some((host, name, path)) = nearest else {
            return Ok(Err(GitRefusal::UnknownHost));
        };
        Ok(Ok(GitGrant {
            sandbox: sandbox.id.clone(),
            host,
            address: format!("{}/{name}", self.0.base),
            path,
            place: name,
            own: self.own_branches(&sandbox, &settings).await?,
            policy: self.0.policy.clone(),
        }))
    }

    /// Where the conversations of a sandbox began to work, and those that are being started; none if no limit depends on that.
    async fn own_branches(
        &self,
        sandbox: &Sandbox,
        settings: &Settings,
    ) -> Result<Vec<OwnBranch>, AppError> {
        if !self.0.policy.needs_branches() {
            return Ok(Vec::new());
        }
        let (scope, filter) = (
            Scope::Owner(sandbox.owner.clone()),
            StartTaskFilter::default(),
        );
        let order = StartTaskOrder::CreatedAtDesc;
        let newest = PageRequest {
            after: None,
            limit: PageLimit::MAX,
        };
        let conversations = self
            .0
            .conversations
            .list_in_sandbox(&sandbox.id, MAX_CONVERSATIONS);
        let starts = self.0.starts.search(&scope, &filter, order, &newest);
        let (conversations, starts) = futures::try_join!(conversations, starts)?;
        let sources = &*self.0.sources;
        let of_conversations = conversations
            .iter()
            .filter_map(|it| OwnBranch::of_conversation(sources, settings, it));
        let unfinished = starts
            .items
            .iter()
            .filter(|task| task.sandbox_id == sandbox.id && !task.status.is_terminal());
        let of_starts = unfinished.filter_map(|it| OwnBranch::of_start(sources, settings, it));
        Ok(of_conversations.chain(of_starts).collect())
    }

    /// The configuration of git in a sandbox; `None` if its owner has no token of a git host.
    pub(crate) fn configuration(
        &self,
        sandbox: &Sandbox,
        settings: &Settings,
    ) -> Result<Option<SecretString>, AppError> {
        match &self.0.secrets {
            Some(secrets) => self.of_hosts(secrets, sandbox, settings),
            None => self.of_service(&sandbox.id, settings),
        }
    }

    /// The service's address in place of each host's.
    fn of_service(
        &self,
        sandbox: &SandboxId,
        settings: &Settings,
    ) -> Result<Option<SecretString>, AppError> {
        let mut hosts = String::new();
        for access in accesses(settings) {
            let Ok(host) = self.0.sources.host(&access) else {
                continue;
            };
            let address = format!("{}/{}/", self.0.base, place_of(&host.url));
            let _ = writeln!(hosts, "[url {}]", quoted(&address));
            let (own, more) = originals(access.provider, &host.url);
            for original in std::iter::once(own).chain(more) {
                let _ = writeln!(hosts, "\tinsteadOf = {}", quoted(&original));
            }
        }
        if hosts.is_empty() {
            return Ok(None);
        }
        let token = self.0.tokens.seal(GIT, sandbox, &"git".into())?;
        let base = quoted(&format!("{}/", self.0.base));
        let header = quoted(&format!("{GIT_TOKEN_HEADER}: {}", token.expose_secret()));
        // The empty value drops those of other files, among them this one.
        let text = format!("[http {base}]\n\textraHeader =\n\textraHeader = {header}\n{hosts}");
        Ok(Some(text.into()))
    }

    /// Each host's own address with the owner's token, or its placeholder.
    fn of_hosts(
        &self,
        secrets: &SecretsService,
        sandbox: &Sandbox,
        settings: &Settings,
    ) -> Result<Option<SecretString>, AppError> {
        let mut text = String::new();
        for (provider, token) in &settings.provider_tokens {
            let access = token.access(*provider);
            let Ok(host) = self.0.sources.host(&access) else {
                continue;
            };
            let has_name = token.token.expose_secret().contains(':');
            let secret = secrets.git_token(sandbox, *provider, token)?;
            let secret = secret.expose_secret();
            let credentials = if has_name {
                secret.to_owned()
            } else {
                format!("{}:{secret}", host.username)
            };
            let header = format!("Authorization: Basic {}", BASE64.encode(credentials));
            let (own, rest) = originals(*provider, &host.url);
            let _ = write!(
                text,
                "[http {own}]\n\textraHeader =\n\textraHeader = {header}\n[url {own}]\n",
                own = quoted(&own),
                header = quoted(&header),
            );
            for original in rest {
                let _ = writeln!(text, "\tinsteadOf = {}", quoted(&original));
            }
        }
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// The beginning of the addresses of a host, and of its addresses for SSH with the same paths.
fn originals(provider: GitProvider, base: &Url) -> (String, Vec<String>) {
    let own = format!("{}/", base.as_str().trim_end_matches('/'));
    let mut ssh = Vec::new();
    let has_same_paths = matches!(
        provider,
        GitProvider::Github | GitProvider::Gitlab | GitProvider::Bitbucket | GitProvider::Forgejo
    );
    if let Some(host) = base
        .host_str()
        .filter(|_| has_same_paths && base.path() == "/")
    {
        ssh.push(format!("git@{host}:"));
        ssh.push(format!("ssh://git@{host}/"));
    }
    (own, ssh)
}

/// A value of a git configuration file. Addresses and tokens have no control characters.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', r"\\").replace('"', r#"\""#))
}
