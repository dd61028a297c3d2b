//! Skills that users may choose from, beside those of their projects.

use std::borrow::Cow;
use std::net::IpAddr;

use async_trait::async_trait;
use url::Url;

use crate::error::{Classify, ErrorClass};

/// A skill of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSkill {
    /// Its name; unique among those of a source.
    pub name: String,
    /// `knowledge`, `repo` or `task`, or what else its file says.
    pub kind: String,
    /// `global`, `user`, or `marketplace:<name>`.
    pub source: String,
    /// Words that call it up.
    pub triggers: Option<Vec<String>>,
}

/// A git repository with more skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marketplace {
    /// Its name.
    pub name: String,
    /// Where it is cloned from, without credentials: an `https://` address, or an `http://` one that may be called.
    pub url: Url,
    /// The only addresses that its host name stands for.
    pub addresses: Vec<IpAddr>,
    /// Branch, tag or commit.
    pub reference: Option<String>,
    /// Directory inside the repository.
    pub repo_path: Option<String>,
}

/// What a marketplace has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarketplaceContents {
    /// Its skills.
    pub skills: Vec<ListedSkill>,
    /// Its plugins; the skills that they bring are not among the skills.
    pub plugins: Vec<MarketplacePlugin>,
}

/// A plugin of a marketplace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarketplacePlugin {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: Option<String>,
}

/// Why skills cannot be read. `Display` is for the user.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// What was named cannot be.
    #[error("{0}")]
    Invalid(String),
    /// It could not be fetched or read.
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

/// The skills of this installation. Every call has a deadline and reads a bounded amount.
#[async_trait]
pub trait SkillLibrary: Send + Sync + 'static {
    /// All of them, by source and name.
    async fn list(&self) -> Result<Vec<ListedSkill>, SkillError>;
    /// What a marketplace offers. It is fetched anew each time.
    async fn read_marketplace(&self, marketplace: &Marketplace) -> Result<MarketplaceContents, SkillError>;
}
