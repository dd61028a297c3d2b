//! What a provider says about a person: in an ID token, and at its `UserInfo` endpoint.

use domain::user::sign_in::UserEmail;
use domain::user::single_sign_on::ProvenIdentity;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Groups of a person that are looked at.
const MAX_GROUPS: usize = 1_000;
const MAX_NAME_CHARS: usize = 256;

/// Claims about the person. All but `sub` may be missing.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PersonClaims {
    pub(crate) sub: String,
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

impl PersonClaims {
    /// Whether a further request may tell more.
    pub(crate) fn lacks_any(&self, claims: &[&str]) -> bool {
        claims.iter().any(|claim| !self.others.contains_key(*claim))
    }

    /// Adds what the other source knows about the same person.
    pub(crate) fn complete(&mut self, more: Self) {
        // Both claims come from one source: its address, and whether that one is verified.
        let has_email = self.others.contains_key("email");
        for (name, value) in more.others {
            if !(has_email && name == "email_verified") {
                self.others.entry(name).or_insert(value);
            }
        }
    }

    fn text(&self, claim: &str) -> Option<&str> {
        self.others.get(claim).and_then(Value::as_str)
    }

    fn email(&self) -> Option<UserEmail> {
        let address = UserEmail::parse_address(self.text("email")?)?;
        let is_verified = match self.others.get("email_verified") {
            Some(Value::Bool(verified)) => *verified,
            // Some providers send texts.
            Some(Value::String(text)) => text == "true",
            _ => false,
        };
        Some(UserEmail {
            address,
            is_verified,
        })
    }

    fn groups(&self, claim: &str) -> Vec<String> {
        match self.others.get(claim) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => {
                let texts = many.iter().filter_map(Value::as_str);
                texts.take(MAX_GROUPS).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn into_identity(self, groups_claim: &str) -> ProvenIdentity {
        let name = self.text("preferred_username");
        ProvenIdentity {
            email: self.email(),
            preferred_name: name.map(|name| name.chars().take(MAX_NAME_CHARS).collect()),
            groups: self.groups(groups_claim),
            subject: self.sub,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(claims: Value) -> ProvenIdentity {
        let claims: PersonClaims = serde_json::from_value(claims).unwrap();
        claims.into_identity("groups")
    }

    #[test]
    fn only_an_address_that_the_provider_calls_verified_is_verified() {
        for (verified, expected) in [
            (json!(true), true),
            (json!("true"), true),
            (json!(false), false),
            (json!("false"), false),
            (json!("yes"), false),
            (json!(1), false),
            (json!(null), false),
        ] {
            let claims = json!({"sub": "s", "email": "A@x.example", "email_verified": verified});
            let email = identity(claims).email.unwrap();
            assert_eq!(
                (email.address.as_str(), email.is_verified),
                ("a@x.example", expected)
            );
        }
        let missing = identity(json!({"sub": "s", "email": "a@x.example"})).email;
        assert!(!missing.unwrap().is_verified);
        for bad in [json!("no address"), json!(["a@x.example"]), json!(7)] {
            let claims = json!({"sub": "s", "email": bad, "email_verified": true});
            assert_eq!(identity(claims).email, None);
        }
    }

    #[test]
    fn an_address_is_not_verified_by_another_source() {
        let parse = |claims: Value| serde_json::from_value::<PersonClaims>(claims).unwrap();
        let mut token = parse(json!({"sub": "s", "email": "evil@x.example"}));
        assert!(token.lacks_any(&["email_verified"]) && !token.lacks_any(&["email"]));
        let more =
            json!({"sub": "s", "email": "a@x.example", "email_verified": true, "groups": "ops"});
        token.complete(parse(more));
        let found = token.into_identity("groups");
        assert!(!found.email.unwrap().is_verified);
        assert_eq!(found.groups, ["ops"]);
    }
}
