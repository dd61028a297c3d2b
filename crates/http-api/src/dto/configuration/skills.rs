//! Skills on the wire; see `docs/reference/wire/settings.md`.

use std::collections::BTreeMap;

use application::skills::{
    MarketplaceOffers, OfferedPlugin, RegisteredMarketplace, check_name, check_repo_path,
    check_source,
};
use domain::skill::ListedSkill;
use serde::Serialize;
use utoipa::ToSchema;

use crate::decode::{Choice, model};

/// A skill.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SkillInfo)]
pub struct SkillDto {
    name: String,
    /// `knowledge`, `repo` or `task`, or the type in its file.
    #[serde(rename = "type")]
    kind: String,
    /// `global`, `user` or `marketplace:<name>`.
    source: String,
    /// Words that trigger the skill.
    #[schema(required)]
    triggers: Option<Vec<String>>,
}

impl From<ListedSkill> for SkillDto {
    fn from(skill: ListedSkill) -> Self {
        Self {
            name: skill.name,
            kind: skill.kind,
            source: skill.source,
            triggers: skill.triggers,
        }
    }
}

/// A plugin that a marketplace offers.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = MarketplacePluginPreview)]
pub struct PluginDto {
    name: String,
    #[schema(required)]
    description: Option<String>,
    /// The marketplace's source, as in the request.
    source: String,
    /// The marketplace's name.
    marketplace: String,
}

impl From<OfferedPlugin> for PluginDto {
    fn from(plugin: OfferedPlugin) -> Self {
        Self {
            name: plugin.name,
            description: plugin.description,
            source: plugin.source,
            marketplace: plugin.marketplace,
        }
    }
}

/// The offers of marketplaces.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = MarketplaceSkillsPreviewResponse)]
pub struct MarketplaceOffersDto {
    skills: Vec<SkillDto>,
    plugins: Vec<PluginDto>,
    /// The names of skills by marketplace.
    marketplace_skills: BTreeMap<String, Vec<String>>,
    /// Marketplaces that could not be read, with the reason.
    errors: Vec<String>,
}

impl From<MarketplaceOffers> for MarketplaceOffersDto {
    fn from(offers: MarketplaceOffers) -> Self {
        Self {
            skills: offers.skills.into_iter().map(SkillDto::from).collect(),
            plugins: offers.plugins.into_iter().map(PluginDto::from).collect(),
            marketplace_skills: offers.by_marketplace,
            errors: offers.errors,
        }
    }
}

/// The audience of a marketplace. Without effect.
#[derive(Debug, Clone, Copy, Choice)]
#[serde(rename_all = "lowercase")]
pub enum RegistrationScope {
    /// All users.
    Instance,
    /// An organization.
    Org,
    /// One user.
    Personal,
}

/// A marketplace to read.
#[model(body)]
#[derive(Debug, Clone)]
pub struct MarketplaceRegistration {
    #[decode(with = check_name)]
    #[schema(pattern = "^[A-Za-z][A-Za-z0-9_-]*$", max_length = 128)]
    name: String,
    /// `github:owner/repo`, or the URL of a git repository. Local paths are read where conversations run, not here.
    #[decode(with = check_source)]
    #[schema(max_length = 2048)]
    source: String,
    /// Branch, tag or commit.
    #[decode(rename = "ref")]
    reference: Option<String>,
    /// Directory inside the repository.
    #[decode(with = check_repo_path)]
    #[schema(max_length = 2048)]
    repo_path: Option<String>,
    /// Without effect.
    #[decode(default = false)]
    pub auto_load: bool,
    /// Without effect.
    #[schema(value_type = Option<String>, pattern = "^(instance|org|personal)$")]
    pub scope: Option<RegistrationScope>,
}

impl From<MarketplaceRegistration> for RegisteredMarketplace {
    fn from(registration: MarketplaceRegistration) -> Self {
        Self {
            name: registration.name,
            source: registration.source,
            reference: registration.reference,
            repo_path: registration.repo_path,
        }
    }
}
