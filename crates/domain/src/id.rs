//! Identifiers, which are validated once, when they are parsed.

use std::fmt;
use std::str::FromStr;

use secrecy::SecretString;
use sha2::{Digest, Sha256};
use smol_str::SmolStr;
use uuid::{Builder, Uuid};

/// The text is not an identifier of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be {expected}")]
pub struct InvalidId {
    pub kind: &'static str,
    pub expected: &'static str,
}

/// Serializes as this text, and deserializes by `FromStr`.
macro_rules! serde_as_text {
    ($name:ident, |$this:ident| $text:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                let $this = self;
                s.serialize_str($text)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(d)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Shown as 32 lower-case hex digits; parsed from any spelling of a UUID.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that a client or the [`IdGenerator`] chose.
            pub const fn new(uuid: Uuid) -> Self { Self(uuid) }
            /// The UUID, for adapters that store or send it in another spelling.
            pub const fn uuid(self) -> Uuid { self.0 }
            /// The 32 hex digits, written to a buffer.
            pub fn hex(self, buffer: &mut [u8; 32]) -> &str { self.0.simple().encode_lower(buffer) }
            /// The form with dashes, which agent servers expect.
            pub fn dashed(self) -> String { self.0.hyphenated().to_string() }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.simple().fmt(f) }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| InvalidId { kind: stringify!($name), expected: "a UUID" })
            }
        }
        serde_as_text!($name, |id| id.hex(&mut [0; 32]));
    )*};
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident, $check:path, $expected:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// Parses and validates the text.
            pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                let text = text.as_ref();
                if $check(text) { Ok(Self(SmolStr::new(text))) } else {
                    Err(InvalidId { kind: stringify!($name), expected: $expected })
                }
            }
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> { Self::parse(text) }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str { &self.0 }
        }
        serde_as_text!($name, |id| id.as_str());
    )*};
}

uuid_id! {
    /// An app conversation, also its id in the agent server.
    ConversationId;
    /// A durable start task.
    StartTaskId;
    /// A user's API key (the record, not its text).
    ApiKeyId;
    /// A browser session (the record, not its token).
    SessionId;
    /// An identity at a provider (the record, not its subject).
    IdentityId;
    /// A custom secret (the record, not its name).
    SecretId;
    /// A connection to a model provider, which profiles share.
    ProviderConnectionId;
    /// An agent profile.
    AgentProfileId;
    /// A host that a sandbox asked for.
    EgressRequestId;
    OrganizationId;
    /// An invitation to an organization (the record, not its token).
    InvitationId;
}

/// Letters, digits, `-` and `_` only: a sandbox id becomes a directory and container name.
fn is_sandbox_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && text.as_bytes()[0].is_ascii_alphanumeric()
}

fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_control() && !c.is_whitespace())
}

fn is_spec_id(text: &str) -> bool {
    text.len() <= 255 && is_visible(text)
}

fn is_user_id(text: &str) -> bool {
    text.len() <= 128 && is_visible(text)
}

/// User names hold no white space, so the first space separates the organization.
fn is_owner_id(text: &str) -> bool {
    let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    match text.split_once(' ') {
        None => is_user_id(text),
        Some((user, organization)) => {
            is_user_id(user)
                && organization.len() == 32
                && organization.bytes().all(is_hex)
                && OrganizationId::personal(&UserId(user.into())).to_string() != organization
        }
    }
}

/// Part of a path and of the name of a cookie.
fn is_provider_name(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.as_bytes()[0] != b'-'
}

/// Agent servers choose event ids; the service only stores them. Postgres texts cannot hold NUL.
fn is_event_id(text: &str) -> bool {
    (1..=512).contains(&text.len()) && !text.contains('\0')
}

text_id! {
    /// A sandbox. Safe as a file or container name by construction.
    SandboxId, is_sandbox_id, "1 to 64 letters, digits, `-` or `_`, starting with a letter or digit";
    /// A sandbox spec (a template); for containers the image reference.
    SpecId, is_spec_id, "1 to 255 visible characters";
    /// A user's name, unique in one installation.
    UserId, is_user_id, "1 to 128 visible characters";
    /// The membership that owns an object: a user in an organization. Its text is the user's name for the personal
    /// organization, else the name, a space and the 32 hex digits of the organization.
    OwnerId, is_owner_id, "a user name, or a user name, a space and the 32 hex digits of an organization";
    /// An identity provider, as the operator names it.
    ProviderName, is_provider_name, "1 to 32 lower-case letters, digits or `-`, starting with a letter or digit";
    /// An event of a conversation: free text of the agent server. Data, never a path.
    EventId, is_event_id, "1 to 512 bytes without NUL";
    /// A host: the machine (or data directory) that runs sandboxes with one backend.
    HostId, is_sandbox_id, "1 to 64 letters, digits, `-` or `_`, starting with a letter or digit";
}

impl OrganizationId {
    /// The personal organization of this user. Its id is derived from the name, so nothing is stored. It is a UUID,
    /// because clients send it in headers and paths, which cannot hold every user name.
    pub fn personal(user: &UserId) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"personal organization\0");
        hash.update(user.as_str());
        let digest: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self::new(Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl OwnerId {
    /// The membership of this user in this organization.
    pub fn new(user: &UserId, organization: OrganizationId) -> Self {
        if organization == OrganizationId::personal(user) {
            return user.into();
        }
        Self(SmolStr::from(format!("{user} {organization}")))
    }

    /// The user, who is a person in all their organizations.
    pub fn user(&self) -> UserId {
        match self.0.split_once(' ') {
            None => UserId(self.0.clone()),
            Some((user, _)) => UserId(SmolStr::new(user)),
        }
    }

    pub fn organization(&self) -> OrganizationId {
        self.shared_organization()
            .unwrap_or_else(|| OrganizationId::personal(&self.user()))
    }

    /// The organization, unless it is the user's personal one.
    pub fn shared_organization(&self) -> Option<OrganizationId> {
        let (_, organization) = self.0.split_once(' ')?;
        organization.parse().ok()
    }
}

impl From<&UserId> for OwnerId {
    /// The membership of a user in their personal organization.
    fn from(user: &UserId) -> Self {
        Self(user.0.clone())
    }
}

impl From<UserId> for OwnerId {
    fn from(user: UserId) -> Self {
        Self(user.0)
    }
}

/// A generated key. Its owner sees the text once.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    pub text: SecretString,
    /// Its first characters, to recognise it by.
    pub prefix: String,
}

/// Generates ids and secrets; the only source of randomness.
pub trait IdGenerator: Send + Sync + 'static {
    /// A random (version 4) UUID.
    fn uuid(&self) -> Uuid;
    /// A secret of at least 256 bits in base62, valid as a header value.
    fn secret(&self) -> SecretString;
    /// A sandbox id: 22 base62 digits of 16 random bytes.
    fn sandbox_id(&self) -> SandboxId;
    fn api_key(&self) -> NewApiKey;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_id_reads_every_spelling_and_shows_hex() {
        let hex = "bd149714357048a29bd54ec68782c6d8";
        for text in [
            hex,
            "bd149714-3570-48a2-9bd5-4ec68782c6d8",
            "BD149714-3570-48A2-9BD5-4EC68782C6D8",
            "urn:uuid:bd149714-3570-48a2-9bd5-4ec68782c6d8",
            "{bd149714-3570-48a2-9bd5-4ec68782c6d8}",
        ] {
            assert_eq!(
                text.parse::<ConversationId>().unwrap().to_string(),
                hex,
                "{text}"
            );
        }
    }

    #[test]
    fn every_user_has_a_stable_personal_organization() {
        let of = |name: &str| OrganizationId::personal(&UserId::parse(name).unwrap());
        // Clients store the id. `printf 'personal organization\0ada' | sha256sum`, marked as a custom UUID.
        assert_eq!(of("ada").to_string(), "04179aa83e558621ab952ccad77564b3");
        assert_ne!(of("ada"), of("Ada"));
    }

    #[test]
    fn an_owner_is_a_user_name_or_a_name_with_a_shared_organization() {
        let ada = UserId::parse("ada").unwrap();
        let personal = OrganizationId::personal(&ada);
        let owner = OwnerId::new(&ada, personal);
        assert_eq!((owner.as_str(), owner.organization()), ("ada", personal));
        assert_eq!(owner.shared_organization(), None);
        let hex = "bd149714357048a29bd54ec68782c6d8";
        let own = personal.to_string();
        for bad in [
            "ada ",
            " ada",
            "ada x",
            &format!("ada  {hex}"),
            &format!("ada {}", hex.to_uppercase()),
            &format!("ada {hex}0"),
            &format!("ada {own}"),
            &format!(" {hex}"),
        ] {
            assert!(OwnerId::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn owners_round_trip_through_text(name in "\\PC{1,20}", id in proptest::prelude::any::<u128>()) {
            let organization = OrganizationId::new(Uuid::from_u128(id));
            if let Ok(user) = UserId::parse(&name) {
                let owner = OwnerId::new(&user, organization);
                let read: OwnerId = owner.to_string().parse().unwrap();
                proptest::prop_assert_eq!(&read, &owner);
                proptest::prop_assert_eq!(read.user(), user);
                proptest::prop_assert_eq!(read.organization(), organization);
            }
        }

        #[test]
        fn parsed_owners_are_canonical(text in "\\PC{0,40}") {
            if let Ok(owner) = OwnerId::parse(&text) {
                let again = OwnerId::new(&owner.user(), owner.organization());
                proptest::prop_assert_eq!(again, owner);
            }
        }
    }

    #[test]
    fn a_sandbox_id_can_never_be_a_path() {
        for text in [
            "",
            ".",
            "..",
            "a/b",
            "../x",
            "a\\b",
            "-a",
            "a b",
            "a\0",
            "é",
            &"a".repeat(65),
        ] {
            assert!(SandboxId::parse(text).is_err(), "{text:?}");
        }
        assert!(SandboxId::parse("530u5nyydOThRTXZ9orFdh").is_ok());
    }
}
