//! Skills of the installation: Markdown files in directories, and marketplaces in git repositories.
//!
//! Knows: directories, front matter, git. Must never know: settings, stores, HTTP, and the rules about allowed hosts. The caller
//! passes the allowed addresses.

mod directory;
mod front_matter;
mod git;
mod manifest;
mod marketplace;
mod naming;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::error::chain;
use domain::skill::{ListedSkill, Marketplace, MarketplaceContents, SkillError, SkillLibrary};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::directory::Directory;
use crate::marketplace::MarketplaceFetcher;
use crate::naming::in_order;

/// Timeout of reading the directories, because a network file system may hang.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Directories of skills, and settings of git.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directories whose skills are `global`. For equal names, the first directory wins.
    pub global: Vec<PathBuf>,
    /// The directory whose skills are `user`.
    pub user: PathBuf,
    /// A directory for repositories while they are read. The library creates it when needed.
    pub scratch: PathBuf,
    /// A file of certificate authorities in PEM form, for git.
    pub authorities: Option<PathBuf>,
}

/// Directories of skills, and git for marketplaces.
#[derive(Debug)]
pub struct DirectoryLibrary {
    directories: Arc<Mutex<Directories>>,
    /// One permit: while one call reads, the others wait without a thread.
    reading: Arc<Semaphore>,
    fetches: MarketplaceFetcher,
}

#[derive(Debug)]
struct Directories {
    global: Vec<Directory>,
    user: Directory,
}

impl Directories {
    fn skills(&mut self) -> Vec<ListedSkill> {
        let global = self.global.iter_mut().flat_map(Directory::skills);
        let mut all = in_order(global.collect());
        all.extend(self.user.skills());
        all
    }
}

impl DirectoryLibrary {
    /// Reads nothing.
    pub fn new(config: Config) -> Self {
        let global = config.global.into_iter();
        let directories = Directories {
            global: global.map(|root| Directory::new(root, "global")).collect(),
            user: Directory::new(config.user, "user"),
        };
        Self {
            directories: Arc::new(Mutex::new(directories)),
            reading: Arc::new(Semaphore::new(1)),
            fetches: MarketplaceFetcher::new(config.scratch, config.authorities),
        }
    }
}

#[async_trait]
impl SkillLibrary for DirectoryLibrary {
    async fn list(&self) -> Result<Vec<ListedSkill>, SkillError> {
        let read = async {
            let permit = Arc::clone(&self.reading).acquire_owned().await;
            let directories = Arc::clone(&self.directories);
            // The thread holds the permit, so threads that hang in a file system cannot pile up.
            let thread = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                directories
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .skills()
            });
            thread.await
        };
        match timeout(READ_TIMEOUT, read).await {
            Ok(Ok(skills)) => Ok(skills),
            Ok(Err(error)) => {
                tracing::error!(error = %chain(&error), "the task that reads the directories of skills failed: {error}");
                Err(SkillError::Unavailable(
                    "The skills cannot be read.".to_owned(),
                ))
            }
            Err(_) => Err(SkillError::Unavailable(
                "Reading the skills takes too long. Try again.".to_owned(),
            )),
        }
    }

    async fn read_marketplace(
        &self,
        marketplace: &Marketplace,
    ) -> Result<MarketplaceContents, SkillError> {
        self.fetches.offer(marketplace).await
    }
}
