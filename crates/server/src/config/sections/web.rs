//! Section `web`.

use std::path::PathBuf;

use settings::SettingReader;
use url::Url;

use super::auth::AuthModeSetting;

/// The web application at `/`.
#[derive(Debug, Clone)]
pub(crate) struct WebSettings {
    pub(crate) is_enabled: bool,
    /// Another build than the installed one.
    pub(crate) dir: Option<PathBuf>,
    /// Where the package is downloaded from.
    pub(crate) registry: Url,
}

impl WebSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            is_enabled: reader.choice("web.enabled", &[("auto", true), ("off", false)]),
            dir: reader
                .optional_path("web.dir")
                .and_then(|path| std::path::absolute(path).ok()),
            registry: reader.parsed(
                "web.registry",
                "an http or https URL without a user and a password",
                registry,
            ),
        }
    }

    /// Whether browsers can use the web application: it has no form for an API key of its own.
    pub(crate) fn is_web_served(&self, mode: AuthModeSetting) -> bool {
        self.is_enabled
            && match mode {
                AuthModeSetting::Open | AuthModeSetting::Accounts => true,
                AuthModeSetting::ApiKey => false,
            }
    }
}

/// The client sends no credentials to a registry.
pub(crate) fn registry(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none();
    is_plain.then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_a_url_without_credentials() {
        for text in ["https://registry.example/", "http://10.0.0.1:4873/npm"] {
            assert!(registry(text).is_some(), "{text}");
        }
        for text in [
            "",
            "registry.example",
            "file:///x",
            "https://user:secret@registry.example/",
            "https://registry.example/?token=x",
        ] {
            assert!(registry(text).is_none(), "{text}");
        }
    }
}
