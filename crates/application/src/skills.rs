//! Skills that users can choose: those of the installation, and those of marketplaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::error::ErrorClass;
use domain::git::CloneSourceResolver;
use domain::id::OwnerId;
use domain::page::{Page, PageRequest, PageToken};
use domain::skill::{ListedSkill, Marketplace, MarketplaceContents, SkillError, SkillLibrary};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use crate::AppError;
use crate::conversations::check_branch;
use crate::keyed_semaphore::KeyedSemaphore;
use crate::settings::marketplaces;

/// Marketplaces of one request, parallel fetches of one request, and the time for all of them.
const MAX_MARKETPLACES: usize = 20;
const MAX_PARALLEL_FETCHES: usize = 2;
const FETCH_TIMEOUT: Duration = Duration::from_secs(90);

/// Parallel requests of one user that fetch marketplaces, running and waiting ones, and the longest wait. A fetch may
/// take a minute, and all users share a few fetches.
const MAX_REQUESTS_PER_USER: usize = 1;
const MAX_WAITING_PER_USER: usize = 4;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct SkillService {
    library: Arc<dyn SkillLibrary>,
    clone_sources: Arc<dyn CloneSourceResolver>,
    fetch_slots: Arc<KeyedSemaphore<OwnerId>>,
}

/// A marketplace as a user registers it; checked by [`check_name`], [`check_source`] and [`check_repo_path`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredMarketplace {
    pub name: String,
    /// `github:owner/repo`, a git address or a relative path.
    pub source: String,
    /// Branch, tag or commit.
    pub reference: Option<String>,
    pub repo_path: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarketplaceOffers {
    pub skills: Vec<ListedSkill>,
    pub plugins: Vec<OfferedPlugin>,
    /// Names of skills by marketplace, for the marketplaces that were read.
    pub by_marketplace: BTreeMap<String, Vec<String>>,
    /// Marketplaces that could not be read, with the reason, for the user.
    pub errors: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedPlugin {
    pub name: String,
    pub description: Option<String>,
    /// The marketplace's source, as registered.
    pub source: String,
    pub marketplace: String,
}

impl SkillService {
    pub(crate) fn new(
        library: Arc<dyn SkillLibrary>,
        clone_sources: Arc<dyn CloneSourceResolver>,
    ) -> Self {
        Self {
            library,
            clone_sources,
            fetch_slots: Arc::new(KeyedSemaphore::new(
                MAX_REQUESTS_PER_USER,
                MAX_WAITING_PER_USER,
            )),
        }
    }

    /// A page of the installation's skills, by source and name.
    pub async fn search(&self, page: &PageRequest) -> Result<Page<ListedSkill>, AppError> {
        let after = page.after.as_ref().map(parse_cursor).transpose()?;
        let all = self.library.list().await;
        let mut all = all.map_err(|error| {
            let class = match error {
                SkillError::Invalid(_) => ErrorClass::Invalid,
                SkillError::Unavailable(_) => ErrorClass::Unavailable,
            };
            AppError::refused(class, error.to_string())
        })?;
        all.sort_by(|a, b| key(a).cmp(&key(b)));
        let after = after
            .as_ref()
            .map(|(source, name)| (source.as_str(), name.as_str()));
        let mut rest = all
            .into_iter()
            .filter(|skill| after.is_none_or(|after| key(skill) > after));
        let items: Vec<_> = rest.by_ref().take(page.limit.get()).collect();
        let last = items.last().filter(|_| rest.next().is_some());
        let next = last.map(|skill| PageToken(format!("{}:{}", skill.source, skill.name)));
        Ok(Page { items, next })
    }

    /// Reads these marketplaces. Failures are in `errors`; the others are read all the same.
    pub async fn offers(
        &self,
        user: &OwnerId,
        of: Vec<RegisteredMarketplace>,
    ) -> MarketplaceOffers {
        let mut offers = MarketplaceOffers::default();
        let slot = timeout(QUEUE_TIMEOUT, self.fetch_slots.acquire(user)).await;
        let Ok(Some(_slot)) = slot else {
            let why = "not read, because others are being read for you; try again in a minute";
            offers.errors = of.iter().map(|of| format!("{}: {why}", of.name)).collect();
            return offers;
        };
        let deadline = Instant::now() + FETCH_TIMEOUT;
        let (requested, omitted) = of.split_at(of.len().min(MAX_MARKETPLACES));
        let results = stream::iter(requested).map(|marketplace| async move {
            let result = timeout_at(deadline, self.offer(marketplace)).await;
            (
                marketplace,
                result.unwrap_or_else(|_| Err("reading all of them takes too long".to_owned())),
            )
        });
        let mut results = results.buffered(MAX_PARALLEL_FETCHES);
        while let Some((marketplace, result)) = results.next().await {
            match result {
                Ok(contents) => offers.add(marketplace, contents),
                Err(reason) => {
                    let name = &marketplace.name;
                    offers.errors.push(format!("{name}: {reason}"));
                }
            }
        }
        let why = format!("not read, because at most {MAX_MARKETPLACES} are read at a time");
        let omitted = omitted.iter().map(|of| format!("{}: {why}", of.name));
        offers.errors.extend(omitted);
        offers
    }

    async fn offer(&self, of: &RegisteredMarketplace) -> Result<MarketplaceContents, String> {
        let url = repository_url(&of.source)?;
        if let Some(reference) = &of.reference {
            check_branch(reference)
                .map_err(|_| "`ref` is not a branch, tag or commit".to_owned())?;
        }
        // The host name is resolved once, here; the fetch uses the checked addresses.
        let addresses = self.clone_sources.resolve_allowed_host(&url).await;
        let addresses =
            addresses.map_err(|refused| format!("its host may not be called: {refused}"))?;
        let marketplace = Marketplace {
            name: of.name.clone(),
            url,
            addresses,
            reference: of.reference.clone(),
            repo_path: of.repo_path.clone(),
        };
        let contents = self.library.read_marketplace(&marketplace).await;
        contents.map_err(|error| error.to_string())
    }
}

impl MarketplaceOffers {
    fn add(&mut self, of: &RegisteredMarketplace, offer: MarketplaceContents) {
        let names = offer.skills.iter().map(|skill| skill.name.clone());
        self.by_marketplace.insert(of.name.clone(), names.collect());
        self.skills.extend(offer.skills);
        self.plugins
            .extend(offer.plugins.into_iter().map(|plugin| OfferedPlugin {
                name: plugin.name,
                description: plugin.description,
                source: of.source.clone(),
                marketplace: of.name.clone(),
            }));
    }
}

fn key(skill: &ListedSkill) -> (&str, &str) {
    (&skill.source, &skill.name)
}

/// Parses a page token: source and name of the last skill of a page.
fn parse_cursor(token: &PageToken) -> Result<(String, String), AppError> {
    let parts = token.0.split_once(':');
    let parts = parts.filter(|(source, _)| matches!(*source, "global" | "user"));
    let parts = parts.map(|(source, name)| (source.to_owned(), name.to_owned()));
    parts.ok_or(AppError::Store(domain::error::StoreError::InvalidPageToken))
}

/// The URL that the repository is cloned from.
fn repository_url(source: &str) -> Result<Url, String> {
    if let Some(repository) = source.strip_prefix("github:") {
        let url = format!("https://github.com/{repository}.git");
        return url
            .parse()
            .map_err(|_| "it is not a valid GitHub repository".to_owned());
    }
    let is_address = ["https://", "http://"]
        .iter()
        .any(|scheme| source.starts_with(scheme));
    if is_address {
        let url: Url = source
            .parse()
            .map_err(|_| "its URL cannot be parsed".to_owned())?;
        return if url.query().is_some() || url.fragment().is_some() {
            Err("its address must have neither `?` nor `#`".to_owned())
        } else {
            Ok(url)
        };
    }
    Err(if source.contains(':') {
        "only repositories at https:// addresses are read here".to_owned()
    } else {
        "it is a path, which is read where conversations run: only repositories are read here"
            .to_owned()
    })
}

/// Checks the name of a marketplace; the error text is part of the wire.
pub fn check_name(name: String) -> Result<String, &'static str> {
    if marketplaces::is_name(&name) {
        Ok(name)
    } else {
        Err(marketplaces::NAME_RULE)
    }
}

pub fn check_source(source: String) -> Result<String, &'static str> {
    if source.len() <= marketplaces::MAX_TEXT_BYTES && marketplaces::is_source(&source) {
        Ok(source)
    } else {
        Err(marketplaces::SOURCE_RULE)
    }
}

pub fn check_repo_path(path: String) -> Result<String, &'static str> {
    let is_text = path.len() <= marketplaces::MAX_TEXT_BYTES && !path.contains(char::is_control);
    if is_text && marketplaces::is_relative(&path) {
        Ok(path)
    } else {
        Err(marketplaces::PATH_RULE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_become_urls() {
        let text = |source| repository_url(source).map(String::from);
        assert_eq!(
            text("github:o/r").as_deref(),
            Ok("https://github.com/o/r.git")
        );
        assert_eq!(
            text("https://git.example/o/r").as_deref(),
            Ok("https://git.example/o/r")
        );
        assert_eq!(
            text("http://git.internal:8080/r.git").as_deref(),
            Ok("http://git.internal:8080/r.git")
        );
        for (source, word) in [
            ("git@host:o/r.git", "https://"),
            ("ssh://host/o/r", "https://"),
            ("file:///etc", "https://"),
            ("ext::sh", "https://"),
            ("skills/own", "path"),
            ("https://h/r?x=1", "neither"),
            ("https://", "parsed"),
        ] {
            let error = repository_url(source).unwrap_err();
            assert!(error.contains(word), "{source}: {error}");
        }
    }

    #[test]
    fn foreign_page_tokens_are_refused() {
        let token = |text: &str| PageToken(text.to_owned());
        let (source, name) = parse_cursor(&token("user:a:b")).unwrap();
        assert_eq!((source.as_str(), name.as_str()), ("user", "a:b"));
        for foreign in ["", "zzz", "2", "other:x"] {
            assert!(parse_cursor(&token(foreign)).is_err(), "{foreign}");
        }
    }
}
