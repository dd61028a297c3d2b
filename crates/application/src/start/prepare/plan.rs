//! What there is to prepare, from the request and the owner's settings. Known before a sandbox is made, so that a start
//! which cannot succeed costs none.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::conversation::GitProvider;
use domain::error::{ErrorClass, chain};
use domain::git::{CloneSource, GitError};
use domain::id::ConversationId;
use domain::start_task::StartTask;
use secrecy::{ExposeSecret, SecretString};

use crate::AppError;
use crate::ports::Ports;
use crate::secrets::TokenUse;
use crate::settings::{LaunchProfile, Settings};
use crate::start::working_dir::REPOSITORY_TAG;

/// How often a provider that is away is asked again: for half a minute in all, without what the asking takes.
const MAX_SOURCE_RETRIES: u32 = 4;
const MIN_SOURCE_BACKOFF: Duration = Duration::from_secs(2);

/// Who commits are by; what is missing is left as the sandbox has it.
#[derive(Debug, Clone, Default)]
pub(in crate::start) struct GitIdentity {
    pub(super) name: Option<String>,
    pub(super) email: Option<String>,
}

/// A repository to clone.
#[derive(Debug, Clone)]
pub(in crate::start) struct PlannedRepository {
    /// As asked for: `owner/repo`.
    pub(super) name: String,
    /// Its directory inside the workspace.
    pub(super) directory: String,
    /// Branch (or tag) asked for.
    pub(super) branch: Option<String>,
    /// Branch to work on when none was asked for: the same for every attempt of this start.
    pub(super) working_branch: String,
    /// With the whole history.
    pub(super) full: bool,
    /// Who hosts it.
    pub(in crate::start) provider: GitProvider,
    /// Where it is.
    pub(super) source: CloneSource,
    /// The stored token is `user:secret`, of which git gets the secret.
    pub(super) is_pair: bool,
    /// Of the token in `source`.
    pub(super) token_use: Option<TokenUse>,
}

impl PlannedRepository {
    /// Name of the host that it is cloned from.
    pub(super) fn host(&self) -> &str {
        self.source.url.host_str().unwrap_or_default()
    }
}

/// Everything that is prepared.
#[derive(Debug, Clone, Default)]
pub(in crate::start) struct PreparationPlan {
    pub(super) identity: GitIdentity,
    pub(in crate::start) repository: Option<PlannedRepository>,
    /// Values of the owner's that must not be in a note.
    pub(super) secrets: Vec<SecretString>,
}

impl PreparationPlan {
    /// Reads the request and the settings. Refused is what the person who asked can mend: a host that may not be called, a
    /// provider that does not answer.
    pub(in crate::start) async fn of(
        ports: &Ports,
        task: &StartTask,
        profile: &LaunchProfile,
        settings: &Settings,
    ) -> Result<Self, AppError> {
        let mut plan = Self {
            identity: GitIdentity {
                name: profile.git_user_name.clone(),
                email: profile.git_user_email.clone(),
            },
            secrets: secrets(profile),
            ..Self::default()
        };
        let request = &task.request;
        if let Some(name) = &request.selected_repository {
            let provider = request
                .git_provider
                .unwrap_or_else(|| default_provider(settings));
            let source = resolve_source(ports, settings, provider, name)
                .await
                .map_err(|error| source_error(name, provider, &error))?;
            plan.repository = Some(PlannedRepository {
                name: name.clone(),
                directory: directory_of_repository(name).to_owned(),
                token_use: token_use(settings, provider),
                is_pair: is_pair(settings, provider, &source),
                branch: request.selected_branch.clone(),
                working_branch: working_branch(task.conversation_id),
                full: profile.git_full_clone,
                provider,
                source,
            });
        }
        Ok(plan)
    }
}

impl PreparationPlan {
    /// Where the repository comes from, if there is one.
    pub(in crate::start) fn provider(&self) -> Option<GitProvider> {
        Some(self.repository.as_ref()?.provider)
    }

    /// What a conversation says about its repository (contract v1, section 2.1).
    pub(in crate::start) fn tags(&self) -> BTreeMap<String, String> {
        let Some(repository) = &self.repository else {
            return BTreeMap::new();
        };
        let mut tags = BTreeMap::from([
            (REPOSITORY_TAG.to_owned(), repository.name.clone()),
            ("git_provider".to_owned(), repository.provider.to_string()),
        ]);
        if let Some(branch) = &repository.branch {
            tags.insert("selected_branch".to_owned(), branch.clone());
        }
        tags
    }
}

/// Without a named provider: the one that a token is stored of, if it is the only one; else GitHub.
fn default_provider(settings: &Settings) -> GitProvider {
    let mut stored = settings.provider_tokens.keys();
    match (stored.next(), stored.next()) {
        (Some(only), None) => *only,
        _ => GitProvider::Github,
    }
}

/// A name server or a provider that is away for a moment ends no start.
async fn resolve_source(
    ports: &Ports,
    settings: &Settings,
    provider: GitProvider,
    repository: &str,
) -> Result<CloneSource, GitError> {
    let mut pause = MIN_SOURCE_BACKOFF;
    for _ in 0..MAX_SOURCE_RETRIES {
        match source(ports, settings, provider, repository).await {
            Err(error @ GitError::Unavailable { .. }) => {
                tracing::debug!(error = %chain(&error), "git provider away; asking again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            done => return done,
        }
    }
    source(ports, settings, provider, repository).await
}

async fn source(
    ports: &Ports,
    settings: &Settings,
    provider: GitProvider,
    repository: &str,
) -> Result<CloneSource, GitError> {
    let Some(stored) = settings.provider_tokens.get(&provider) else {
        return ports.git.public_source(provider, repository).await;
    };
    let access = stored.access(provider);
    ports.git.clone_source(&access, repository).await
}

fn source_error(name: &str, provider: GitProvider, error: &GitError) -> AppError {
    AppError::refused(
        ErrorClass::Upstream,
        format!(
            "Repository {name} cannot be cloned: {error}. Look at the host and the token of {provider} in the settings."
        ),
    )
}

/// The last part of its name.
pub(in crate::start) fn directory_of_repository(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.strip_suffix(".git")
        .filter(|name| !name.is_empty())
        .unwrap_or(last)
}

fn token_use(settings: &Settings, provider: GitProvider) -> Option<TokenUse> {
    let stored = settings.provider_tokens.get(&provider)?;
    Some(TokenUse::of(provider, stored))
}

fn is_pair(settings: &Settings, provider: GitProvider, source: &CloneSource) -> bool {
    let stored = settings.provider_tokens.get(&provider);
    match (stored, &source.token) {
        (Some(stored), Some(secret)) => stored
            .token
            .expose_secret()
            .split_once(':')
            .is_some_and(|(_, end)| end == secret.expose_secret()),
        _ => false,
    }
}

/// `openhands-workspace-…`, as clients know it from other servers of this API.
fn working_branch(conversation: ConversationId) -> String {
    let id = conversation.to_string();
    let end = id.len().saturating_sub(16);
    format!("openhands-workspace-{}", &id[end..])
}

/// What scripts of a repository could print, and a note must not show.
fn secrets(profile: &LaunchProfile) -> Vec<SecretString> {
    let mut all: Vec<SecretString> = profile.secrets.values().cloned().collect();
    all.extend(profile.llm.api_key.clone());
    all.extend(profile.llm.secret_options.values().cloned());
    all.extend(profile.search_api_key.clone());
    // What git is given of a pair.
    let halves = profile.secrets.values();
    let halves = halves.filter_map(|token| token.expose_secret().split_once(':'));
    all.extend(halves.map(|(_, secret)| SecretString::from(secret)));
    all
}
