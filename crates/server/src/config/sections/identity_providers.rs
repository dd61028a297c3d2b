//! Tables `[[auth.oidc]]`: identity providers.

use std::collections::BTreeMap;

use application::single_sign_on::{NewUserRule, ProviderRules};
use domain::id::ProviderName;
use secrecy::SecretString;
use settings::{Redaction, SettingReader, SettingSection, TemplateKeys};

use super::auth_mode::AuthModeSetting;

/// One login page has no room for more.
const MAX_PROVIDERS: usize = 20;

pub(in crate::config) const SECTION: SettingSection = SettingSection {
    defaults: "",
    templates: Some(TemplateKeys {
        section: "auth.oidc",
        table: "auth.oidc",
        required: &["auth.oidc.name", "auth.oidc.issuer", "auth.oidc.client_id"],
        optional: &[
            "auth.oidc.client_secret",
            "auth.oidc.client_secret_file",
            "auth.oidc.scopes",
            "auth.oidc.label",
            "auth.oidc.new_users",
            "auth.oidc.new_user_domains",
            "auth.oidc.link_verified_email",
            "auth.oidc.groups_claim",
            "auth.oidc.administrators",
        ],
    }),
    redacted: &[("auth.oidc.client_secret", Redaction::Value)],
};

/// A provider, as it is configured.
#[derive(Debug, Clone)]
pub(crate) struct OidcSettings {
    pub(crate) name: String,
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<SecretString>,
    pub(crate) scopes: Vec<String>,
    pub(crate) label: String,
    pub(crate) groups_claim: String,
    rules: ProviderRules,
}

#[derive(Debug, Clone, Copy)]
enum NewUsersSetting {
    Closed,
    Domains,
    Open,
}

impl OidcSettings {
    /// All providers. Refuses two of one name, and providers where people do not sign in.
    pub(in crate::config) fn read_all(
        reader: &SettingReader<'_>,
        mode: AuthModeSetting,
    ) -> Vec<Self> {
        let all = reader.templates("auth.oidc", Self::read);
        if !all.is_empty() && mode != AuthModeSetting::Accounts {
            let problem =
                "must be `accounts`, so that people can sign in at the providers of auth.oidc";
            reader.problem("auth.mode", problem);
        }
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                let problem = "is the name of another provider, too";
                reader.template_problem(index, "auth.oidc.name", problem);
            }
            if index == MAX_PROVIDERS {
                let problem = format!("is one too many: {MAX_PROVIDERS} providers are possible");
                reader.template_problem(index, "auth.oidc.name", &problem);
            }
        }
        all
    }

    fn read(reader: &SettingReader<'_>) -> Self {
        let check = |key: &str, expected: &str, is_valid: fn(&str) -> bool| {
            let valid = |text: &str| is_valid(text).then(|| text.to_owned());
            // A missing one has been reported.
            reader
                .optional_parsed(key, expected, valid)
                .unwrap_or_default()
        };
        let name = check(
            "auth.oidc.name",
            "1 to 32 lower-case letters, digits or `-`, starting with a letter or digit",
            |text| ProviderName::parse(text).is_ok(),
        );
        let issuer = check(
            "auth.oidc.issuer",
            "an https URL without query and fragment (http only on a loopback address)",
            crate::compose::adapters::is_issuer,
        );
        let label = reader.optional("auth.oidc.label");
        let scopes = reader.parsed_list("auth.oidc.scopes", "words", |text| {
            let is_word = text.bytes().all(|byte| byte.is_ascii_graphic());
            is_word.then(|| text.to_owned())
        });
        Self {
            label: label.unwrap_or_else(|| capitalized(&name)),
            name,
            issuer,
            client_id: reader.text("auth.oidc.client_id"),
            client_secret: reader.secret("auth.oidc.client_secret"),
            scopes,
            groups_claim: reader.text("auth.oidc.groups_claim"),
            rules: ProviderRules {
                new_users: new_users(reader),
                administrators: reader.list("auth.oidc.administrators"),
                link_verified_email: reader.switch("auth.oidc.link_verified_email"),
            },
        }
    }

    /// The rules for the identities of each provider.
    pub(crate) fn rules(all: &[Self]) -> BTreeMap<ProviderName, ProviderRules> {
        let rules = all.iter().filter_map(|provider| {
            let name = ProviderName::parse(&provider.name).ok()?;
            Some((name, provider.rules.clone()))
        });
        rules.collect()
    }
}

fn new_users(reader: &SettingReader<'_>) -> NewUserRule {
    let choices = [
        ("closed", NewUsersSetting::Closed),
        ("domains", NewUsersSetting::Domains),
        ("open", NewUsersSetting::Open),
    ];
    let domains = reader.parsed_list(
        "auth.oidc.new_user_domains",
        "domains of e-mail addresses, e.g. example.org",
        |text| {
            let is_domain = text
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-'));
            is_domain.then(|| text.to_lowercase())
        },
    );
    match reader.choice("auth.oidc.new_users", &choices) {
        NewUsersSetting::Closed => NewUserRule::Closed,
        NewUsersSetting::Open => NewUserRule::Open,
        NewUsersSetting::Domains => {
            if domains.is_empty() {
                let problem = "is `domains`, which needs new_user_domains";
                reader.problem("auth.oidc.new_users", problem);
            }
            NewUserRule::Domains(domains)
        }
    }
}

/// `gitlab` → `Gitlab`.
fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
