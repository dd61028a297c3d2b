//! Skills that users can choose, beside those of their projects.

use std::borrow::Cow;
use std::net::IpAddr;

use async_trait::async_trait;
use url::Url;

use crate::error::{Classify, ErrorClass};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSkill {
    /// Its name; unique within its source.
    pub name: String,
    /// `knowledge`, `repo` or `task`, or another kind that its file names.
    pub kind: String,
    /// `global`, `user`, or `marketplace:<name>`.
    pub source: String,
    /// Words that activate it.
    pub triggers: Option<Vec<String>>,
}

/// A git repository with skills and plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marketplace {
    pub name: String,
    /// Its clone address without credentials: an `https://` address, or an `http://` address that is allowed.
    pub url: Url,
    /// The IP addresses to connect to for its host name.
    pub addresses: Vec<IpAddr>,
    /// Branch, tag or commit.
    pub reference: Option<String>,
    /// Directory inside the repository.
    pub repo_path: Option<String>,
}

/// The skills and plugins of a marketplace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarketplaceContents {
    pub skills: Vec<ListedSkill>,
    /// Its plugins. `skills` does not contain the skills of plugins.
    pub plugins: Vec<MarketplacePlugin>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarketplacePlugin {
    pub name: String,
    /// Its purpose.
    pub description: Option<String>,
}

/// Why skills cannot be read. `Display` is for the user.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    #[error("{0}")]
    Invalid(String),
    /// The marketplace could not be fetched or read.
    #[error("{0}")]
    Unavailable(String),
}

impl Classify for SkillError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid(_) => ErrorClass::Invalid,
            Self::Unavailable(_) => ErrorClass::Upstream,
        }
    }

    fn public(&self) -> Cow<'_, str> {
        self.to_string().into()
    }
}

/// The skills of the installation. Every call has a deadline and reads a bounded amount.
#[async_trait]
pub trait SkillLibrary: Send + Sync + 'static {
    /// All skills, by source and name.
    async fn list(&self) -> Result<Vec<ListedSkill>, SkillError>;
    /// The contents of a marketplace. Every call fetches it again.
    async fn read_marketplace(
        &self,
        marketplace: &Marketplace,
    ) -> Result<MarketplaceContents, SkillError>;
}
