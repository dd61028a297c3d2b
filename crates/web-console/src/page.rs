//! The document of the console and of the settings pages. All of them are one application, `assets/app.js`.

use crate::template::fill;

pub(crate) const PAGE_TEMPLATE: &str = include_str!("../templates/console.html");

/// The part of the application that a document shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsolePage {
    /// `/console/`: conversations, sandboxes, administration.
    Console,
    /// `/settings`: the account of the caller.
    Settings,
    /// `/settings/skills`.
    Skills,
}

/// How people sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSignIn {
    /// With a session, which begins at `/login`.
    Session,
    /// With an API key, which the page asks for.
    Key,
    /// Not at all: each request acts as the local user.
    Open,
}

impl ConsolePage {
    /// The document. `has_web_app`: whether the web application is at `/`. Addresses in it are relative, so that it works below
    /// any path of a proxy.
    #[must_use]
    pub fn document(self, sign_in: PageSignIn, has_web_app: bool) -> String {
        let (page, assets) = match self {
            Self::Console => ("console", ""),
            Self::Settings => ("settings", "console/"),
            Self::Skills => ("skills", "../console/"),
        };
        let sign_in = match sign_in {
            PageSignIn::Session => "session",
            PageSignIn::Key => "key",
            PageSignIn::Open => "open",
        };
        fill(
            PAGE_TEMPLATE,
            &[
                ("page", page),
                ("assets", assets),
                ("sign_in", sign_in),
                ("web_app", if has_web_app { "yes" } else { "no" }),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_names_its_files_and_how_people_sign_in() {
        for (page, sign_in, script, attributes) in [
            (
                ConsolePage::Console,
                PageSignIn::Key,
                "src=\"app.js\"",
                "data-page=\"console\" data-sign-in=\"key\" data-web-app=\"yes\"",
            ),
            (
                ConsolePage::Settings,
                PageSignIn::Session,
                "src=\"console/app.js\"",
                "data-page=\"settings\" data-sign-in=\"session\" data-web-app=\"yes\"",
            ),
            (
                ConsolePage::Skills,
                PageSignIn::Open,
                "src=\"../console/app.js\"",
                "data-page=\"skills\" data-sign-in=\"open\" data-web-app=\"yes\"",
            ),
        ] {
            let document = page.document(sign_in, true);
            assert!(document.contains(script), "{document}");
            assert!(document.contains(attributes), "{document}");
            assert!(!document.contains("{{"), "{document}");
        }
        let without = ConsolePage::Console.document(PageSignIn::Key, false);
        assert!(without.contains("data-web-app=\"no\""));
    }
}
