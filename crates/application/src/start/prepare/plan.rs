//! The plan of a preparation, from the request and the owner's settings. It is made before the sandbox, so that a
//! start which cannot succeed costs none.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::error::{ErrorClass, chain};
use domain::git::{CloneSource, CloneSourceResolver, GitError, GitProvider};
use domain::start_task::StartTask;
use secrecy::{ExposeSecret, SecretString};

use crate::AppError;
use crate::git::rights::{default_provider, working_branch};
use crate::settings::{LaunchProfile, ProviderToken, Settings};
use crate::start::working_dir::{REPOSITORY_TAG, directory_of_repository};

/// Retries while a git provider is unavailable: half a minute in all, plus the requests themselves.
const SOURCE_BACKOFF_SECONDS: [u64; 4] = [2, 4, 8, 16];

/// Author of commits; missing values are left as the sandbox has them.
#[derive(Debug, Clone, Default)]
pub(in crate::start) struct GitIdentity {
    pub(super) name: Option<String>,
    pub(super) email: Option<String>,
}

#[derive(Debug, Clone)]
pub(in crate::start) struct PlannedRepository {
    /// The name in the request: `owner/repo`.
    pub(super) name: String,
    pub(super) directory: String,
    /// The requested branch or tag.
    pub(super) branch: Option<String>,
    /// Branch to work on without a requested one; the same for every attempt of this start.
    pub(super) working_branch: String,
    pub(super) full: bool,
    pub(in crate::start) provider: GitProvider,
    pub(super) source: CloneSource,
}

impl PlannedRepository {
    pub(super) fn host(&self) -> &str {
        self.source.url.host_str().unwrap_or_default()
    }
}

#[derive(Debug, Clone, Default)]
pub(in crate::start) struct PreparationPlan {
    pub(super) identity: GitIdentity,
    pub(in crate::start) repository: Option<PlannedRepository>,
    /// The hosts that git in the sandbox reaches through the service, and the sandbox's token for them.
    pub(in crate::start) git_configuration: Option<SecretString>,
    /// Secrets of the owner that notes must not show.
    pub(super) secrets: Vec<SecretString>,
}

impl PreparationPlan {
    /// Makes the plan. Refuses what the user can correct: a host that may not be called, a provider that does not
    /// answer.
    pub(in crate::start) async fn of(
        sources: &dyn CloneSourceResolver,
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
            let stored = settings.provider_tokens.get(&provider);
            let source = resolve_source(sources, stored, provider, name)
                .await
                .map_err(|error| source_error(name, provider, &error))?;
            plan.repository = Some(PlannedRepository {
                name: name.clone(),
                directory: directory_of_repository(name).to_owned(),
                branch: request.selected_branch.clone(),
                working_branch: working_branch(task.conversation_id),
                full: profile.git_full_clone,
                provider,
                source,
            });
        }
        Ok(plan)
    }

    /// Provider of the repository, if there is one.
    pub(in crate::start) fn provider(&self) -> Option<GitProvider> {
        Some(self.repository.as_ref()?.provider)
    }

    /// Tags of a conversation with a repository (`docs/reference/wire/conversations.md`).
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

/// Finds the clone URL. A short failure of a name server or a provider does not end the start.
async fn resolve_source(
    sources: &dyn CloneSourceResolver,
    stored: Option<&ProviderToken>,
    provider: GitProvider,
    repository: &str,
) -> Result<CloneSource, GitError> {
    let access = stored.map(|stored| stored.access(provider));
    let mut pauses = SOURCE_BACKOFF_SECONDS.into_iter();
    loop {
        let source = match &access {
            Some(access) => sources.clone_source(access, repository),
            None => sources.public_source(provider, repository),
        };
        match (source.await, pauses.next()) {
            (Err(error @ GitError::Unavailable { .. }), Some(pause)) => {
                tracing::debug!(error = %chain(&error), "git provider unavailable; trying again");
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
            (done, _) => return done,
        }
    }
}

fn source_error(name: &str, provider: GitProvider, error: &GitError) -> AppError {
    AppError::refused(
        ErrorClass::Upstream,
        format!(
            "Repository {name} cannot be cloned: {error}. Check the host and the token of {provider} in the settings."
        ),
    )
}

/// Secrets that scripts of a repository could print and notes must not show.
fn secrets(profile: &LaunchProfile) -> Vec<SecretString> {
    let mut all: Vec<SecretString> = profile.secrets.values().cloned().collect();
    all.extend(profile.llm.api_key.clone());
    all.extend(profile.llm.secret_options.values().cloned());
    all.extend(profile.search_api_key.clone());
    // The part of a `user:secret` token that git gets.
    let halves = profile.secrets.values();
    let halves = halves.filter_map(|token| token.expose_secret().split_once(':'));
    all.extend(halves.map(|(_, secret)| SecretString::from(secret)));
    all
}
