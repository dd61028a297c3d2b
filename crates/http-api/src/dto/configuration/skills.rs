//! Skills on the wire; see `docs/reference/wire/settings.md`.

use std::collections::BTreeMap;

use application::skills::{
    MarketplaceOffers, OfferedPlugin, RegisteredMarketplace, check_name, check_repo_path,
    check_source,
};
use domain::skill::ListedSkill;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::decode::{Choice, Decode, FieldErrors, Object, Path};

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

/// The audience of a marketplace. Decoded, without effect.
#[derive(Debug, Clone, Copy)]
struct RegistrationScope;

impl Choice for RegistrationScope {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("instance", Self), ("org", Self), ("personal", Self)];
}

/// A marketplace to read.
#[derive(Debug, Clone)]
pub struct RegistrationInput(pub RegisteredMarketplace);

impl Decode for RegistrationInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let name = object.required("name");
        let name = object.convert("name", name, check_name);
        let source = object.required("source");
        let source = object.convert("source", source, check_source);
        let reference = object.optional("ref");
        let repo_path = object.optional("repo_path");
        let repo_path = object.convert_optional("repo_path", repo_path, check_repo_path);
        let auto_load = object.default("auto_load", || false);
        let scope = object.optional::<RegistrationScope>("scope");
        auto_load?;
        scope?;
        Some(Self(RegisteredMarketplace {
            name: name?,
            source: source?,
            reference: reference?,
            repo_path: repo_path?,
        }))
    }
}

/// A marketplace to read.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `RegistrationInput`")]
pub struct MarketplaceRegistration {
    #[schema(pattern = "^[A-Za-z][A-Za-z0-9_-]*$", max_length = 128)]
    name: String,
    /// `github:owner/repo`, or the URL of a git repository. Local paths are read where conversations run, not here.
    #[schema(max_length = 2048)]
    source: String,
    /// Branch, tag or commit.
    #[schema(rename = "ref")]
    reference: Option<String>,
    /// Directory inside the repository.
    #[schema(max_length = 2048)]
    repo_path: Option<String>,
    /// Without effect.
    #[schema(required = false, default = false)]
    auto_load: bool,
    /// Without effect.
    #[schema(pattern = "^(instance|org|personal)$")]
    scope: Option<String>,
}
