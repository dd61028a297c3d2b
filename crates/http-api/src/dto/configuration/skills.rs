//! Skills on the wire; see `docs/reference/wire/settings.md`.

use std::collections::BTreeMap;

use application::skills::{
    MarketplaceOffers, OfferedPlugin, RegisteredMarketplace, check_name, check_repo_path,
    check_source,
};
use domain::skill::ListedSkill;

use crate::decode::model;
use crate::dto::each;
use crate::dto::enums::choice;

/// A skill.
#[model(response = SkillInfo, from(skill: ListedSkill))]
pub(crate) struct SkillDto {
    name: String,
    /// `knowledge`, `repo` or `task`, or the type in its file.
    #[serde(rename = "type")]
    kind: String,
    /// `global`, `user` or `marketplace:<name>`.
    source: String,
    triggers: Option<Vec<String>>,
}

/// A plugin that a marketplace offers.
#[model(response = MarketplacePluginPreview, from(plugin: OfferedPlugin))]
pub(crate) struct PluginDto {
    name: String,
    description: Option<String>,
    /// The marketplace's source, as in the request.
    source: String,
    /// The marketplace's name.
    marketplace: String,
}

/// The offers of marketplaces.
#[model(response = MarketplaceSkillsPreviewResponse, from(offers: MarketplaceOffers))]
pub(crate) struct MarketplaceOffersDto {
    #[from(each(offers.skills))]
    skills: Vec<SkillDto>,
    #[from(each(offers.plugins))]
    plugins: Vec<PluginDto>,
    /// The names of skills by marketplace.
    #[from(offers.by_marketplace)]
    marketplace_skills: BTreeMap<String, Vec<String>>,
    /// Marketplaces that could not be read, with the reason.
    errors: Vec<String>,
}

choice!(pub(crate) Enum RegistrationScope, "The audience of a marketplace. Without effect." {
    Instance = "instance",
    Org = "org",
    Personal = "personal",
});

/// A marketplace to read.
#[model(body, into = RegisteredMarketplace)]
pub(crate) struct MarketplaceRegistration {
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
    #[into(skip)]
    #[expect(dead_code, reason = "only validated")]
    auto_load: bool,
    /// Without effect.
    #[schema(value_type = Option<String>, pattern = "^(instance|org|personal)$")]
    #[into(skip)]
    #[expect(dead_code, reason = "only validated")]
    scope: Option<RegistrationScope>,
}
