//! Explains failed pulls: the registry and the engine report only text.

use std::sync::Arc;

use domain::sandbox::SandboxError;

use super::reference;
use crate::engine::errors::EngineError;

/// A failed pull, shared by all waiters.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct PullError {
    pub(super) detail: String,
    #[source]
    source: Option<EngineError>,
}

impl PullError {
    pub(super) fn new(image: &str, error: EngineError) -> Self {
        let detail = if error.is_engine_failure() {
            format!("the image {image} could not be pulled: {}", error.detail())
        } else {
            describe_refusal(image, &error.message())
        };
        Self {
            detail,
            source: Some(error),
        }
    }

    pub(super) fn stalled(image: &str, seconds: u64) -> Self {
        Self::reported(format!(
            "pulling the image {image} made no progress for {seconds}s and was cancelled: the operator has to check \
             that the engine's connection to {} is fast and steady",
            reference::registry(image)
        ))
    }

    pub(super) fn ended_early(image: &str) -> Self {
        Self::reported(format!(
            "the engine stopped pulling the image {image} without a cause: start the sandbox again, or read the engine's log"
        ))
    }

    fn reported(detail: String) -> Self {
        Self {
            detail,
            source: None,
        }
    }

    pub(super) fn to_sandbox_error(self: &Arc<Self>) -> SandboxError {
        SandboxError::Unavailable {
            detail: self.detail.clone(),
            source: Some(Box::new(Arc::clone(self))),
        }
    }
}

/// Texts that identify causes, the most specific first, with advice.
const CAUSES: [(&[&str], &str); 7] = [
    (
        &["toomanyrequests", "too many requests", "rate limit"],
        "the registry {registry} refuses more pulls for now: try again later, or the operator has to configure \
         credentials for it (WORKSPACE_DOCKER__REGISTRY_*)",
    ),
    (
        &[
            "no matching manifest",
            "does not match the specified platform",
        ],
        "the image does not support the platform of the engine's machine: the operator has to choose another image",
    ),
    (
        &[
            "no basic auth credentials",
            "unauthorized",
            "authentication required",
            "denied",
            "forbidden",
        ],
        "the registry {registry} gives no access to it, or does not have it: the operator has to check its name and \
         the credentials for this registry (WORKSPACE_DOCKER__REGISTRY_*)",
    ),
    (
        &[
            "manifest unknown",
            "name unknown",
            "not found: manifest",
            "invalid reference format",
        ],
        "the registry {registry} does not have it: the operator has to check the name and tag in the sandbox template",
    ),
    (
        &["http response to https", "x509", "certificate"],
        "the engine does not trust the registry {registry}: the operator has to give the engine its certificate, or \
         list it as an insecure registry",
    ),
    (
        &[
            "no such host",
            "name resolution",
            "server misbehaving",
            "dial tcp",
            "network is unreachable",
            "connection refused",
            "connection reset",
            "timeout",
            "unexpected eof",
            "deadline exceeded",
            "awaiting headers",
        ],
        "the engine could not reach the registry {registry}, or lost it: the operator has to check the engine's \
         network, name resolution and proxy, or load the image there by hand",
    ),
    (
        &["not found"],
        "the registry {registry} does not have it: the operator has to check the name and tag in the sandbox template",
    ),
];

fn describe_refusal(image: &str, message: &str) -> String {
    let lower = message.to_ascii_lowercase();
    let mut causes = CAUSES.iter();
    let cause = causes.find(|(words, _)| words.iter().any(|word| lower.contains(word)));
    let mut message: String = message.chars().take(300).collect();
    if let Some((_, cause)) = cause {
        let cause = cause.replace("{registry}", reference::registry(image));
        message = format!("{cause} ({message})");
    }
    format!("the image {image} could not be pulled: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of engine 20.10 and Podman 4.3.
    #[test]
    fn causes_are_recognized_by_texts() {
        for (message, expected) in [
            (
                "manifest for 127.0.0.1:5000/a:1 not found: manifest unknown: manifest unknown",
                "does not have it",
            ),
            (
                "pull access denied for a/b, repository does not exist or may require 'docker login'",
                "gives no access",
            ),
            (
                "Get \"https://ghcr.io/v2/\": dial tcp: lookup ghcr.io on 10.0.0.1:53: no such host",
                "could not reach the registry",
            ),
            (
                "Get \"https://ghcr.io/v2/\": net/http: TLS handshake timeout",
                "could not reach the registry",
            ),
            ("unexpected EOF", "could not reach the registry"),
            (
                "toomanyrequests: You have reached your pull rate limit",
                "refuses more pulls",
            ),
            (
                "Get \"https://r:5000/v2/\": http: server gave HTTP response to HTTPS client",
                "does not trust the registry",
            ),
            (
                "no matching manifest for linux/arm64/v8 in the manifest list entries",
                "does not support the platform",
            ),
        ] {
            let reported = describe_refusal("a/b:1", message);
            assert!(reported.contains(expected), "{message}: {reported}");
            assert!(
                reported.contains(message),
                "the engine's message is missing in {reported}"
            );
        }
        let reported = describe_refusal("a/b:1", "something new");
        assert_eq!(
            reported,
            "the image a/b:1 could not be pulled: something new"
        );
    }
}
