//! E-mail addresses of users.

/// Longest e-mail address, in bytes.
pub const MAX_EMAIL_BYTES: usize = 254;

/// The e-mail address of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserEmail {
    /// In lower case.
    pub address: String,
    /// Whether an identity provider or an operator vouches for it. Users may enter any address themselves.
    pub is_verified: bool,
}

impl UserEmail {
    /// The address in lower case, without the white space around it; `None` if it has not the form `local@domain`, or is too
    /// long.
    pub fn parse_address(text: &str) -> Option<String> {
        let text = text.trim();
        let (local, domain) = text.rsplit_once('@')?;
        let is_plain = |part: &str| {
            !part.is_empty() && part.chars().all(|c| !c.is_control() && !c.is_whitespace())
        };
        let is_domain = domain
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-'));
        let is_local = is_plain(local)
            && !local.contains(['@', '<', '>', '"', ',', ';', ':', '(', ')', '[', ']', '\\']);
        (is_local && is_plain(domain) && is_domain && text.len() <= MAX_EMAIL_BYTES)
            .then(|| text.to_lowercase())
            .filter(|text| text.len() <= MAX_EMAIL_BYTES)
    }

    /// The part after the `@`.
    pub fn domain(&self) -> &str {
        let domain = self.address.rsplit_once('@').map(|(_, domain)| domain);
        domain.unwrap_or_default()
    }
}
