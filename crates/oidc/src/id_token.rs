//! The ID token: a JSON Web Token in which the provider says who has signed in.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::clock::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::claims::PersonClaims;
use crate::jwk::{Jwk, SigningAlgorithm};

/// By how much the clocks of provider and service may differ, in seconds.
const MAX_CLOCK_SKEW_SECONDS: f64 = 60.0;
/// Characters of a subject, as OpenID Connect limits it.
const MAX_SUBJECT_CHARS: usize = domain::user::single_sign_on::MAX_SUBJECT_CHARS;

/// What the token must say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedToken<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) now: Timestamp,
}

/// Why a token proves nothing. No text contains the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The provider may have a new key.
    #[error("the ID token is signed with an unknown key")]
    UnknownKey,
    #[error("the ID token {0}")]
    Invalid(&'static str),
}

#[derive(Debug, Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    /// Extensions that the reader must understand.
    crit: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct TokenClaims {
    iss: String,
    aud: AudienceClaim,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
    #[serde(flatten)]
    person: PersonClaims,
}

/// One audience, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum AudienceClaim {
    One(String),
    Several(Vec<String>),
}

impl AudienceClaim {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// A token whose signature has not been verified yet.
pub(crate) struct SignedToken<'a> {
    header: TokenHeader,
    algorithm: SigningAlgorithm,
    message: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
}

impl<'a> SignedToken<'a> {
    /// Refuses algorithms that do not prove that the provider signed: none, and those with a shared secret.
    pub(crate) fn parse(text: &'a str) -> Result<Self, TokenError> {
        let malformed = || TokenError::Invalid("is not a signed JSON Web Token");
        let (message, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, payload) = message.split_once('.').ok_or_else(malformed)?;
        let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| malformed())?;
        let header: TokenHeader = serde_json::from_slice(&header).map_err(|_| malformed())?;
        if header.crit.is_some() {
            return Err(TokenError::Invalid("needs an unknown extension"));
        }
        let algorithm = SigningAlgorithm::parse(&header.alg);
        let algorithm =
            algorithm.ok_or(TokenError::Invalid("has no permitted signature algorithm"))?;
        let signature = URL_SAFE_NO_PAD.decode(signature);
        Ok(Self {
            header,
            algorithm,
            message,
            payload,
            signature: signature.map_err(|_| malformed())?,
        })
    }

    /// Verifies the signature with the provider's keys, then what the token says.
    pub(crate) fn verify(
        &self,
        keys: &[Jwk],
        expected: ExpectedToken<'_>,
    ) -> Result<PersonClaims, TokenError> {
        let (kid, alg) = (self.header.kid.as_deref(), self.header.alg.as_str());
        let mut candidates = keys.iter().filter(|key| key.is_for(kid, alg)).peekable();
        if candidates.peek().is_none() {
            return Err(TokenError::UnknownKey);
        }
        let message = self.message.as_bytes();
        if !candidates.any(|key| key.verifies(self.algorithm, message, &self.signature)) {
            // Without a key id, the key may be a new one.
            return Err(match kid {
                None => TokenError::UnknownKey,
                Some(_) => TokenError::Invalid("has a wrong signature"),
            });
        }
        let unreadable = || TokenError::Invalid("has unreadable claims");
        let claims = URL_SAFE_NO_PAD
            .decode(self.payload)
            .map_err(|_| unreadable())?;
        let claims: TokenClaims = serde_json::from_slice(&claims).map_err(|_| unreadable())?;
        claims.check(expected).map_err(TokenError::Invalid)?;
        Ok(claims.person)
    }
}

impl TokenClaims {
    fn check(&self, expected: ExpectedToken<'_>) -> Result<(), &'static str> {
        let audiences = self.aud.all();
        let is_own = |party: &str| party == expected.client_id;
        // Seconds have no need of more precision.
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let now = expected.now.micros() as f64 / 1_000_000.0;
        let subject = &self.person.sub;
        let checks = [
            (self.iss == expected.issuer, "is of another issuer"),
            (
                audiences.iter().any(|it| is_own(it)),
                "is for another audience",
            ),
            (
                self.azp.as_deref().map_or(audiences.len() == 1, is_own),
                "was issued to another client",
            ),
            (self.exp > now - MAX_CLOCK_SKEW_SECONDS, "has expired"),
            (
                self.iat <= now + MAX_CLOCK_SKEW_SECONDS
                    && self
                        .nbf
                        .is_none_or(|nbf| nbf <= now + MAX_CLOCK_SKEW_SECONDS),
                "is not valid yet: the clock of the provider or of this machine is wrong",
            ),
            (
                self.nonce.as_deref() == Some(expected.nonce),
                "belongs to another login",
            ),
            (
                !subject.is_empty()
                    && subject.chars().count() <= MAX_SUBJECT_CHARS
                    && !subject.contains(char::is_control),
                "has an invalid subject",
            ),
        ];
        let failed = checks.into_iter().find(|(is_right, _)| !is_right);
        failed.map_or(Ok(()), |(_, reason)| Err(reason))
    }
}
