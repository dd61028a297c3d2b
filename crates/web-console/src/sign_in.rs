//! The pages on which people sign in. They work without JavaScript.

/// The content security policy of the pages: they load from this origin and send forms to it, and nothing frames them.
pub const SIGN_IN_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                          frame-ancestors 'none'; base-uri 'none'; form-action 'self'; \
                          require-trusted-types-for 'script'; trusted-types 'none'";

pub(crate) const LOGIN_TEMPLATE: &str = include_str!("../templates/login.html");
pub(crate) const PASSWORD_TEMPLATE: &str = include_str!("../templates/password.html");

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
}

/// The page with the form for name and password.
#[must_use]
pub fn login_page(page: &LoginPage<'_>) -> String {
    fill(
        LOGIN_TEMPLATE,
        &[
            ("prefix", &escape(page.prefix)),
            ("message", &alert(page.message)),
            ("return_to", &escape(page.return_to)),
            ("name", &escape(page.name)),
        ],
    )
}

/// The page on which the holder of a one-time link sets a password. `token`: the code as it was typed before.
#[must_use]
pub fn password_page(prefix: &str, token: &str, message: Option<&str>) -> String {
    fill(
        PASSWORD_TEMPLATE,
        &[
            ("prefix", &escape(prefix)),
            ("message", &alert(message)),
            ("token", &escape(token)),
        ],
    )
}

fn alert(message: Option<&str>) -> String {
    let message =
        message.map(|text| format!("<p class=\"failure\" role=\"alert\">{}</p>", escape(text)));
    message.unwrap_or_default()
}

/// Replaces `{{name}}` by values, which are not searched again.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + 256);
    let mut parts = template.split("{{");
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        text.push_str(value.map_or("", |(_, value)| value));
        text.push_str(rest);
    }
    text
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

    #[test]
    fn values_never_become_markup() {
        let evil = "\"><script>alert('{{name}}')</script>&";
        let page = login_page(&LoginPage {
            prefix: "/agents",
            return_to: evil,
            name: evil,
            message: Some(evil),
        });
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("value=\"&quot;&gt;&lt;script&gt;alert(&#39;{{name}}&#39;)"));
        assert!(page.contains("action=\"/agents/login\""));
        let page = password_page("", evil, Some(evil));
        assert_eq!(page.matches("<script").count(), 1, "its own");
        assert!(page.contains("role=\"alert\"") && page.contains("src=\"/console/password.js\""));
        for page in [
            login_page(&LoginPage::default()),
            password_page("", "", None),
        ] {
            assert!(
                !page.contains("{{") && !page.contains("role=\"alert\""),
                "{page}"
            );
        }
    }

    #[test]
    fn every_field_has_a_label() {
        for template in [LOGIN_TEMPLATE, PASSWORD_TEMPLATE] {
            for input in template.split("<input id=\"").skip(1) {
                let id = input.split('"').next().unwrap();
                assert!(template.contains(&format!("<label for=\"{id}\">")), "{id}");
            }
            assert!(template.contains("<html lang=\"en\">"));
        }
    }
}
