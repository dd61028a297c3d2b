//! The pages on which people sign in. They work without JavaScript.

use std::fmt::Write as _;

use crate::template::fill;

/// The content security policy of the pages: they load from this origin and send forms to it, and nothing frames them.
pub const SIGN_IN_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                          frame-ancestors 'none'; base-uri 'none'; form-action 'self'; \
                          require-trusted-types-for 'script'; trusted-types 'none'";

/// The document around all of them.
const FRAME_TEMPLATE: &str = include_str!("../templates/frame.html");
const LOGIN_TEMPLATE: &str = include_str!("../templates/login.html");
const PASSWORD_TEMPLATE: &str = include_str!("../templates/password.html");
const FORGOTTEN_PASSWORD_TEMPLATE: &str = include_str!("../templates/forgotten_password.html");
const INVITE_TEMPLATE: &str = include_str!("../templates/invite.html");
const DEVICE_CODE_TEMPLATE: &str = include_str!("../templates/device_code.html");
const DEVICE_DONE_TEMPLATE: &str = include_str!("../templates/device_done.html");
const DEVICE_DENIED_TEMPLATE: &str = include_str!("../templates/device_denied.html");
const INVITE_MEMBER_TEMPLATE: &str = include_str!("../templates/invite_member.html");
const INVITE_STRANGER_TEMPLATE: &str = include_str!("../templates/invite_stranger.html");

/// A whole page. `script`: its file, if it has one.
fn document(prefix: &str, title: &str, script: Option<&str>, body: &str) -> String {
    let prefix = escape(prefix);
    let script = script.map(|name| {
        format!("\n  <script type=\"module\" src=\"{prefix}/console/{name}\"></script>")
    });
    fill(
        FRAME_TEMPLATE,
        &[
            ("prefix", &prefix),
            ("title", title),
            ("script", &script.unwrap_or_default()),
            ("body", body.trim_end()),
        ],
    )
}

/// The values of the login page.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoginPage<'a> {
    /// Path of the public URL, without a trailing slash.
    pub prefix: &'a str,
    /// The address to open after the login.
    pub return_to: &'a str,
    /// The name as it was typed before.
    pub name: &'a str,
    /// Why the login failed.
    pub message: Option<&'a str>,
    /// Identity providers.
    pub providers: &'a [ProviderButton],
    /// Whether the service mails links for new passwords.
    pub mails_links: bool,
}

/// The button of an identity provider.
#[derive(Debug, Clone)]
pub struct ProviderButton {
    /// Its name in addresses.
    pub name: String,
    /// Its text.
    pub label: String,
}

/// The page with the form for name and password.
#[must_use]
pub fn login_page(page: &LoginPage<'_>) -> String {
    let body = fill(
        LOGIN_TEMPLATE,
        &[
            ("prefix", &escape(page.prefix)),
            ("message", &alert(page.message)),
            ("return_to", &escape(page.return_to)),
            ("name", &escape(page.name)),
            ("providers", &provider_buttons(page)),
            ("forgotten", &forgotten_link(page)),
        ],
    );
    document(page.prefix, "Sign in", Some("login.js"), &body)
}

fn forgotten_link(page: &LoginPage<'_>) -> String {
    if !page.mails_links {
        return String::new();
    }
    let prefix = escape(page.prefix);
    format!("<p><a href=\"{prefix}/password/forgot\">Forgot your password?</a></p>")
}

/// The values of the page on which a person who forgot the password asks for a link.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForgottenPasswordPage<'a> {
    /// Path of the public URL, without a trailing slash.
    pub prefix: &'a str,
    /// The name or address as it was typed before.
    pub name: &'a str,
    /// Why no link is sent.
    pub message: Option<&'a str>,
    /// Whether the request was taken. The page says the same whether there is such an account or not.
    pub is_taken: bool,
}

/// The page on which a person who forgot the password asks for a link by mail.
#[must_use]
pub fn forgotten_password_page(page: &ForgottenPasswordPage<'_>) -> String {
    let taken = "<p role=\"status\">If there is an account of this name or address with a verified e-mail address, a mail with a \
                 link is on its way.</p>";
    let message = if page.is_taken {
        taken.to_owned()
    } else {
        alert(page.message)
    };
    let body = fill(
        FORGOTTEN_PASSWORD_TEMPLATE,
        &[
            ("prefix", &escape(page.prefix)),
            ("message", &message),
            ("name", &escape(page.name)),
        ],
    );
    document(page.prefix, "Forgot your password?", None, &body)
}

/// The page on which the holder of a one-time link sets a password. `token`: the code as it was typed before.
#[must_use]
pub fn password_page(prefix: &str, token: &str, message: Option<&str>) -> String {
    let body = fill(
        PASSWORD_TEMPLATE,
        &[
            ("prefix", &escape(prefix)),
            ("message", &alert(message)),
            ("token", &escape(token)),
        ],
    );
    document(prefix, "Set a password", Some("password.js"), &body)
}

/// The values of the page on which a person accepts an invitation.
#[derive(Debug, Clone, Copy, Default)]
pub struct InvitePage<'a> {
    /// Path of the public URL, without a trailing slash.
    pub prefix: &'a str,
    /// The code as it was typed before.
    pub token: &'a str,
    /// The user who is signed in. Without one, the page creates an account.
    pub user: Option<&'a str>,
    /// The name as it was typed before.
    pub name: &'a str,
    /// Why the invitation was not accepted.
    pub message: Option<&'a str>,
}

/// The page on which a person accepts an invitation to an organization.
#[must_use]
pub fn invite_page(page: &InvitePage<'_>) -> String {
    let prefix = escape(page.prefix);
    let account = match page.user {
        Some(user) => fill(INVITE_MEMBER_TEMPLATE, &[("name", &escape(user))]),
        None => fill(
            INVITE_STRANGER_TEMPLATE,
            &[
                ("prefix", &prefix),
                ("name", &escape(page.name)),
                ("return_to", &format!("{prefix}/invite")),
            ],
        ),
    };
    let body = fill(
        INVITE_TEMPLATE,
        &[
            ("prefix", &prefix),
            ("message", &alert(page.message)),
            ("token", &escape(page.token)),
            ("account", account.trim_end()),
        ],
    );
    document(
        page.prefix,
        "Join an organization",
        Some("invite.js"),
        &body,
    )
}

/// The values of the page on which a person signs a program in.
#[derive(Debug, Clone, Copy, Default)]
pub struct DevicePage<'a> {
    /// Path of the public URL, without a trailing slash.
    pub prefix: &'a str,
    /// The user who is signed in.
    pub user: &'a str,
    /// The code of the program.
    pub code: &'a str,
    /// Why the code was neither confirmed nor denied.
    pub message: Option<&'a str>,
    /// What the person decided; `None` asks.
    pub decision: Option<DeviceDecision>,
}

/// The answer of a person to a program that asks to be signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceDecision {
    /// The program gets an API key of the person.
    Confirm,
    /// The program gets nothing.
    Deny,
}

/// The page on which a person confirms or denies the code of a program.
#[must_use]
pub fn device_page(page: &DevicePage<'_>) -> String {
    let body = match page.decision {
        Some(DeviceDecision::Confirm) => DEVICE_DONE_TEMPLATE.to_owned(),
        Some(DeviceDecision::Deny) => DEVICE_DENIED_TEMPLATE.to_owned(),
        None => fill(
            DEVICE_CODE_TEMPLATE,
            &[
                ("prefix", &escape(page.prefix)),
                ("message", &alert(page.message)),
                ("name", &escape(page.user)),
                ("code", &escape(page.code)),
            ],
        ),
    };
    document(page.prefix, "Sign in a program", None, &body)
}

/// Links, because a form would go on to the provider, which the policy of the page refuses.
fn provider_buttons(page: &LoginPage<'_>) -> String {
    let query = percent_encoded(page.return_to);
    let buttons = page.providers.iter().map(|provider| {
        format!(
            "<p><a class=\"button\" href=\"{}/oauth/{}/login?returnTo={query}\">Sign in with {}</a></p>",
            escape(page.prefix),
            percent_encoded(&provider.name),
            escape(&provider.label)
        )
    });
    buttons.collect()
}

/// Keeps letters and digits, and encodes all other bytes.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut encoded, byte| {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                encoded.push(char::from(byte));
            } else {
                // Writing to a `String` does not fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
            encoded
        })
}

fn alert(message: Option<&str>) -> String {
    let message =
        message.map(|text| format!("<p class=\"failure\" role=\"alert\">{}</p>", escape(text)));
    message.unwrap_or_default()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "\"><script>alert('{{name}}')</script>&";

    #[test]
    fn values_never_become_markup() {
        let evil = EVIL;
        let page = login_page(&LoginPage {
            prefix: "/agents",
            return_to: evil,
            name: evil,
            message: Some(evil),
            providers: &[ProviderButton {
                name: evil.to_owned(),
                label: evil.to_owned(),
            }],
            mails_links: false,
        });
        assert!(!page.contains("Forgot your password?"));
        assert_eq!(page.matches("<script").count(), 1, "its own");
        assert!(page.contains("value=\"&quot;&gt;&lt;script&gt;alert(&#39;{{name}}&#39;)"));
        assert!(page.contains("action=\"/agents/login\""));
        for user in [None, Some(evil)] {
            let page = invite_page(&InvitePage {
                prefix: "/agents",
                token: evil,
                user,
                name: evil,
                message: Some(evil),
            });
            assert_eq!(page.matches("<script").count(), 1, "its own");
            assert!(page.contains("action=\"/agents/invite\""));
        }
        assert!(
            page.contains("href=\"/agents/oauth/%22%3E%3Cscript"),
            "{page}"
        );
        assert!(
            page.contains("returnTo=%22%3E%3Cscript%3Ealert%28"),
            "{page}"
        );
        for page in [
            login_page(&LoginPage::default()),
            password_page("", "", None),
            forgotten_password_page(&ForgottenPasswordPage::default()),
        ] {
            assert!(
                !page.contains("{{") && !page.contains("role=\"alert\""),
                "{page}"
            );
        }
    }

    #[test]
    fn values_never_become_markup_in_links_and_confirmations() {
        let evil = EVIL;
        let forgotten = forgotten_password_page(&ForgottenPasswordPage {
            prefix: "/agents",
            name: evil,
            message: Some(evil),
            is_taken: false,
        });
        assert_eq!(forgotten.matches("<script").count(), 0);
        assert!(forgotten.contains("action=\"/agents/password/forgot\""));
        let device = device_page(&DevicePage {
            prefix: "/agents",
            user: evil,
            code: evil,
            message: Some(evil),
            decision: None,
        });
        assert_eq!(device.matches("<script").count(), 0);
        assert!(device.contains("action=\"/agents/oauth/device/verify-authenticated\""));
        assert!(device.contains("<button name=\"decision\" value=\"deny\">"));
        let page = password_page("", evil, Some(evil));
        assert_eq!(page.matches("<script").count(), 1, "its own");
        assert!(page.contains("role=\"alert\"") && page.contains("src=\"/console/password.js\""));
    }

    #[test]
    fn every_field_has_a_label() {
        for page in [
            login_page(&LoginPage::default()),
            password_page("", "", None),
            forgotten_password_page(&ForgottenPasswordPage::default()),
            invite_page(&InvitePage::default()),
            device_page(&DevicePage::default()),
        ] {
            for input in page.split("<input id=\"").skip(1) {
                let id = input.split('"').next().unwrap();
                assert!(page.contains(&format!("<label for=\"{id}\">")), "{id}");
            }
            assert!(page.contains("<html lang=\"en\">"));
        }
    }
}
