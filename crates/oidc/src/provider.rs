//! One provider: the address of a login, and the exchange of its code for a proven identity.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::clock::Clock;
use domain::user::single_sign_on::{
    AuthorizationResponse, AuthorizationSecrets, ProvenIdentity, ProviderError,
};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use ring::digest::{SHA256, digest};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::claims::PersonClaims;
use crate::config::ProviderConfig;
use crate::discovery::{Discovery, ProviderMetadata};
use crate::http::{ProviderHttp, unavailable};
use crate::id_token::{ExpectedToken, SignedToken, TokenError};

const TOKENS: &str = "its token endpoint failed";
const USER_INFO: &str = "its UserInfo endpoint failed";

pub(crate) struct Provider {
    config: ProviderConfig,
    http: ProviderHttp,
    clock: Arc<dyn Clock>,
    discovery: Discovery,
}

/// The answer of the token endpoint. Not `Debug`: both tokens are secret.
#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(deserialize_with = "secret")]
    id_token: SecretString,
    #[serde(default, deserialize_with = "optional_secret")]
    access_token: Option<SecretString>,
}

#[derive(Deserialize)]
struct TokenEndpointError {
    error: String,
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    String::deserialize(from).map(SecretString::from)
}

fn optional_secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(SecretString::from))
}

fn invalid(reason: impl Into<String>) -> ProviderError {
    ProviderError::Invalid(reason.into())
}

fn refused(error: TokenError) -> ProviderError {
    invalid(error.to_string())
}

impl Provider {
    pub(crate) fn new(config: ProviderConfig, http: ProviderHttp, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            http,
            clock,
            discovery: Discovery::default(),
        }
    }

    pub(crate) fn config(&self) -> &ProviderConfig {
        &self.config
    }

    async fn metadata(&self) -> Result<Arc<ProviderMetadata>, ProviderError> {
        self.discovery
            .metadata(&self.http, &self.config.issuer)
            .await
    }

    pub(crate) async fn authorization_url(
        &self,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
    ) -> Result<Url, ProviderError> {
        let mut url = self.metadata().await?.authorization_endpoint.clone();
        let verifier = secrets.verifier.expose_secret();
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let others = self.config.scopes.iter().filter(|scope| *scope != "openid");
        let scope = others.fold("openid".to_owned(), |all, scope| format!("{all} {scope}"));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("scope", &scope)
            .append_pair("state", secrets.state.expose_secret())
            .append_pair("nonce", secrets.nonce.expose_secret())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    pub(crate) async fn prove(
        &self,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
        response: &AuthorizationResponse,
    ) -> Result<ProvenIdentity, ProviderError> {
        let metadata = self.metadata().await?;
        let is_other = match &response.issuer {
            Some(issuer) => *issuer != metadata.issuer,
            None => metadata.authorization_response_iss_parameter_supported,
        };
        if is_other {
            return Err(invalid("the response is of another issuer"));
        }
        let tokens = self
            .exchange(&metadata, redirect, secrets, response)
            .await?;
        let mut person = self.verify(&metadata, secrets, &tokens.id_token).await?;
        self.ask_for_more(&metadata, &tokens, &mut person).await?;
        Ok(person.into_identity(&self.config.groups_claim))
    }

    /// Exchanges the code for tokens.
    async fn exchange(
        &self,
        metadata: &ProviderMetadata,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
        response: &AuthorizationResponse,
    ) -> Result<TokenAnswer, ProviderError> {
        let (headers, form) = self.token_request(metadata, redirect, secrets, response);
        let sent = self
            .http
            .post(&metadata.token_endpoint, headers, form, TOKENS);
        let (status, body) = sent.await?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body)
                .map_err(|_| unavailable("its token endpoint returned no ID token", None));
        }
        let refusal = serde_json::from_slice::<TokenEndpointError>(&body);
        match refusal.map(|it| it.error).as_deref() {
            Ok("invalid_grant") => Err(invalid("the provider does not accept the code")),
            Ok("invalid_client" | "unauthorized_client") => Err(unavailable(
                "it does not accept this service's client id or secret: check auth.oidc",
                None,
            )),
            _ => Err(unavailable(
                TOKENS,
                Some(format!("the status is {status}").into()),
            )),
        }
    }

    fn token_request(
        &self,
        metadata: &ProviderMetadata,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
        response: &AuthorizationResponse,
    ) -> (HeaderMap, String) {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", response.code.expose_secret())
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("code_verifier", secrets.verifier.expose_secret());
        let mut headers = HeaderMap::new();
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let has_method = |name: &str| methods.iter().any(|method| method == name);
        let client_id = &self.config.client_id;
        match &self.config.client_secret {
            // The default where a provider names no methods.
            Some(secret) if methods.is_empty() || has_method("client_secret_basic") => {
                headers.insert(AUTHORIZATION, basic_credentials(client_id, secret));
            }
            Some(secret) => {
                form.append_pair("client_id", client_id)
                    .append_pair("client_secret", secret.expose_secret());
            }
            None => {
                form.append_pair("client_id", client_id);
            }
        }
        (headers, form.finish())
    }

    /// Verifies the ID token; with newer keys if it is signed with an unknown one.
    async fn verify(
        &self,
        metadata: &ProviderMetadata,
        secrets: &AuthorizationSecrets,
        id_token: &SecretString,
    ) -> Result<PersonClaims, ProviderError> {
        let token = SignedToken::parse(id_token.expose_secret()).map_err(refused)?;
        let expected = ExpectedToken {
            issuer: &metadata.issuer,
            client_id: &self.config.client_id,
            nonce: secrets.nonce.expose_secret(),
            now: self.clock.now(),
        };
        let keys = self.discovery.keys(&self.http, metadata).await?;
        match token.verify(&keys, expected) {
            Err(TokenError::UnknownKey) => {
                let keys = self
                    .discovery
                    .newer_keys(&self.http, metadata, keys)
                    .await?;
                token.verify(&keys, expected).map_err(refused)
            }
            verified => verified.map_err(refused),
        }
    }

    /// Asks the `UserInfo` endpoint for claims that the token lacks: many providers leave most of them out of it.
    async fn ask_for_more(
        &self,
        metadata: &ProviderMetadata,
        tokens: &TokenAnswer,
        person: &mut PersonClaims,
    ) -> Result<(), ProviderError> {
        let wanted = ["email", "preferred_username", &self.config.groups_claim];
        let (Some(endpoint), Some(access)) = (&metadata.userinfo_endpoint, &tokens.access_token)
        else {
            return Ok(());
        };
        if !person.lacks_any(&wanted) {
            return Ok(());
        }
        let bearer = HeaderValue::from_str(&format!("Bearer {}", access.expose_secret()));
        let mut bearer = bearer.map_err(|_| unavailable(TOKENS, None))?;
        bearer.set_sensitive(true);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
        let more: PersonClaims = self.http.get(endpoint, headers, USER_INFO).await?;
        if more.sub != person.sub {
            return Err(invalid("the UserInfo endpoint names another subject"));
        }
        person.complete(more);
        Ok(())
    }
}

/// `Basic`, with both parts encoded as in a form, as OAuth 2.0 wants them.
fn basic_credentials(client_id: &str, secret: &SecretString) -> HeaderValue {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(client_id), encode(secret.expose_secret()));
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
    let mut value = value.unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}
