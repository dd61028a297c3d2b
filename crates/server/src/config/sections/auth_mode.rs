//! The setting `auth.mode`.

/// How callers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthModeSetting {
    ApiKey,
    /// Users sign in; API keys work as well.
    Accounts,
    /// Requests need no key: all act as one local user.
    Open,
}
