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
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::error::chain;
use domain::skill::{ListedSkill, Marketplace, MarketplaceContents, SkillError, SkillLibrary};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::directory::Directory;
use crate::marketplace::{MarketplaceFetcher, unavailable};
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
    pub ca_file: Option<PathBuf>,
}

/// Directories of skills, and git for marketplaces.
#[derive(Debug)]
pub struct DirectoryLibrary {
    /// While one call reads, the others wait without a thread.
    directories: Arc<Mutex<Directories>>,
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
            fetches: MarketplaceFetcher::new(config.scratch, config.ca_file),
        }
    }
}

#[async_trait]
impl SkillLibrary for DirectoryLibrary {
    async fn list(&self) -> Result<Vec<ListedSkill>, SkillError> {
        let read = async {
            let mut directories = Arc::clone(&self.directories).lock_owned().await;
            // The thread holds the lock, so threads that hang in a file system cannot pile up.
            tokio::task::spawn_blocking(move || directories.skills()).await
        };
        match timeout(READ_TIMEOUT, read).await {
            Ok(Ok(skills)) => Ok(skills),
            Ok(Err(error)) => {
                tracing::error!(error = %chain(&error), "the task that reads the directories of skills failed: {error}");
                Err(unavailable("The skills cannot be read."))
            }
            Err(_) => Err(unavailable("Reading the skills takes too long. Try again.")),
        }
    }

    async fn read_marketplace(
        &self,
        marketplace: &Marketplace,
    ) -> Result<MarketplaceContents, SkillError> {
        self.fetches.offer(marketplace).await
    }
}
