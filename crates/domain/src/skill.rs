//! Skills that users may choose from, beside those of their projects.

use std::borrow::Cow;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::{Classify, ErrorClass};

/// A skill of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSkill {
    /// Its name; unique among those of a source.
    pub name: String,
    /// `repo`, `knowledge` or `agentskills`.
    pub kind: String,
    /// `global` or `user`.
    pub source: String,
    /// Words that call it up.
    pub triggers: Option<Vec<String>>,
}

/// Where more skills come from (contract v1, `MarketplaceRegistration`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marketplace {
    /// Its name.
    pub name: String,
    /// `github:owner/repo`, a git URL, or a path.
    pub source: String,
    /// Branch, tag or commit.
    pub reference: Option<String>,
    /// Directory inside the repository.
    pub repo_path: Option<String>,
}

/// What a marketplace has, as the wire says it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// Names of skills.
    pub skills: Vec<String>,
    /// Plugins: documents.
    pub plugins: Vec<Value>,
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
    /// What a marketplace offers.
    async fn offer(&self, marketplace: &Marketplace) -> Result<Offer, SkillError>;
}
