//! What the operator allows identities of a provider to do, and the names of new users.

use domain::error::ErrorClass;
use domain::id::{IdGenerator, UserId};
use domain::user::identity::Role;
use domain::user::sign_in::UserEmail;
use domain::user::single_sign_on::ProvenIdentity;

use crate::AppError;

/// Longest name that is made from a name or address at a provider.
const MAX_DERIVED_NAME_CHARS: usize = 64;
/// Names with a number that are tried when the name itself is taken.
const MAX_NUMBERED_NAMES: usize = 8;
/// The user of the bootstrap key. Outsiders must not become it where it does not exist yet.
const RESERVED_NAME: &str = "admin";

/// Who becomes a user by a first login.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NewUserRule {
    /// No identity without a linked user.
    #[default]
    Closed,
    /// Identities with a verified e-mail address in one of these domains, in lower case.
    Domains(Vec<String>),
    Open,
}

/// The rules for one provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderRules {
    pub new_users: NewUserRule,
    /// Groups whose members are administrators. If there are any, the provider decides the role at each login.
    pub administrators: Vec<String>,
    /// Whether the first login with a verified address is linked to the one user with that verified address.
    pub link_verified_email: bool,
}

impl ProviderRules {
    /// The role that the provider decides, if it decides one.
    pub(super) fn role(&self, groups: &[String]) -> Option<Role> {
        if self.administrators.is_empty() {
            return None;
        }
        let is_admin = groups.iter().any(|it| self.administrators.contains(it));
        Some(if is_admin { Role::Admin } else { Role::User })
    }

    /// Refuses identities that may not become a user.
    pub(super) fn check_new_user(&self, email: Option<&UserEmail>) -> Result<(), AppError> {
        let refusal = match (&self.new_users, email) {
            (NewUserRule::Open, _) => return Ok(()),
            (NewUserRule::Closed, _) => {
                "There is no account for you here. Ask an administrator for one, then link it to this login."
            }
            (NewUserRule::Domains(domains), Some(email)) if email.is_verified => {
                if domains.iter().any(|domain| domain == email.domain()) {
                    return Ok(());
                }
                "There is no account for you here, and your e-mail address is not of a domain that gets one. Ask an administrator."
            }
            (NewUserRule::Domains(_), _) => {
                "A new account needs an e-mail address that your provider has verified. Verify it there, then try again."
            }
        };
        Err(AppError::refused(ErrorClass::Unauthenticated, refusal))
    }
}

/// Names to try for a new user, the best first.
pub(super) fn user_names(proven: &ProvenIdentity, ids: &dyn IdGenerator) -> Vec<UserId> {
    let address = proven.email.as_ref().map(|email| email.address.as_str());
    let texts = [proven.preferred_name.as_deref(), address];
    let plain = texts.into_iter().flatten().map(plain_name);
    let base = plain.into_iter().find(|name| !name.is_empty());
    let base = base.unwrap_or_else(|| "user".to_owned());
    let numbered = (2..2 + MAX_NUMBERED_NAMES).map(|n| format!("{base}-{n}"));
    let random = ids.uuid().simple().to_string();
    let random = format!("{base}-{}", &random[..12]);
    let all = std::iter::once(base.clone())
        .filter(|name| name != RESERVED_NAME)
        .chain(numbered)
        .chain([random]);
    all.filter_map(|name| UserId::parse(name).ok()).collect()
}

/// ASCII letters, digits, `.`, `_` and `-` of the text before an `@`. Other letters could look like those of another user.
fn plain_name(text: &str) -> String {
    let text = text.rsplit_once('@').map_or(text, |(local, _)| local);
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let kept = text.chars().map(|c| if c == ' ' { '.' } else { c });
    let kept: String = kept.filter(is_kept).take(MAX_DERIVED_NAME_CHARS).collect();
    kept.trim_matches(['.', '_', '-']).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use store_memory::SequentialIds;

    use super::*;

    fn email(address: &str, is_verified: bool) -> UserEmail {
        UserEmail {
            address: address.to_owned(),
            is_verified,
        }
    }

    #[test]
    fn new_users_need_the_operators_permission() {
        let domains = NewUserRule::Domains(vec!["x.example".to_owned()]);
        let table = [
            (NewUserRule::Closed, Some(email("a@x.example", true)), false),
            (NewUserRule::Open, None, true),
            (domains.clone(), Some(email("a@x.example", true)), true),
            (domains.clone(), Some(email("a@x.example", false)), false),
            (domains.clone(), Some(email("a@sub.x.example", true)), false),
            (domains.clone(), Some(email("a@evilx.example", true)), false),
            (domains, None, false),
        ];
        for (new_users, email, expected) in table {
            let rules = ProviderRules {
                new_users,
                ..ProviderRules::default()
            };
            let found = rules.check_new_user(email.as_ref()).is_ok();
            assert_eq!(found, expected, "{rules:?} {email:?}");
        }
    }

    #[test]
    fn groups_decide_the_role_only_where_the_operator_says_so() {
        let groups = ["staff".to_owned(), "ops".to_owned()];
        let rules = |names: &[&str]| ProviderRules {
            administrators: names.iter().map(|&name| name.to_owned()).collect(),
            ..ProviderRules::default()
        };
        assert_eq!(rules(&[]).role(&groups), None);
        assert_eq!(rules(&["ops"]).role(&groups), Some(Role::Admin));
        assert_eq!(rules(&["Ops", "op"]).role(&groups), Some(Role::User));
        assert_eq!(rules(&["ops"]).role(&[]), Some(Role::User));
    }

    #[test]
    fn new_users_get_plain_names() {
        let names = |preferred: Option<&str>, address: Option<&str>| {
            let proven = ProvenIdentity {
                preferred_name: preferred.map(str::to_owned),
                email: address.map(|address| email(address, false)),
                ..ProvenIdentity::default()
            };
            let names = user_names(&proven, &SequentialIds::default());
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let first = |preferred, address| names(preferred, address).remove(0);
        assert_eq!(
            first(Some("Ada.Lovelace"), Some("x@x.example")),
            "ada.lovelace"
        );
        assert_eq!(first(Some("ada@corp.example"), None), "ada");
        assert_eq!(first(Some("Ada Lovelace"), None), "ada.lovelace");
        assert_eq!(first(None, Some("ada+x@x.example")), "adax");
        assert_eq!(first(Some("日本"), Some("ada@x.example")), "ada");
        assert_eq!(first(Some("../@/"), None), "user");
        assert_eq!(first(None, None), "user");
        let long = "a".repeat(500);
        assert_eq!(first(Some(&long), None).len(), MAX_DERIVED_NAME_CHARS);
        // Cyrillic.
        assert_eq!(first(Some("аdmin"), None), "dmin");
        assert_eq!(first(Some("Admin"), None), "admin-2");
        let all = names(Some("ada"), None);
        assert_eq!(
            (all.len(), all[1].as_str()),
            (MAX_NUMBERED_NAMES + 2, "ada-2")
        );
        assert!(all[MAX_NUMBERED_NAMES + 1].len() > "ada-".len() + 8);
    }
}
