//! Why a request was not forwarded, or has no answer.

use thiserror::Error;

/// What went wrong. The text is for the client and says what to do; the cause is for the log.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// Too much is under way in all.
    #[error("The service forwards as many requests as it can at the moment. Try again.")]
    Full,
    /// Too much is under way in this sandbox.
    #[error(
        "Too many requests or sockets of this sandbox are open at once. Close some, or try again."
    )]
    SandboxFull,
    /// Too much is under way of all sandboxes of one owner.
    #[error(
        "Too many requests or sockets of this user's sandboxes are open at once. Close some, or try again."
    )]
    OwnerFull,
    /// An upgrade in a form that cannot be forwarded.
    #[error(
        "A request that upgrades is a GET without a body and says `Connection: Upgrade`. A reverse proxy in between may have \
         dropped that header."
    )]
    BadUpgrade,
    /// The request cannot be written down for the server behind.
    #[error("The request cannot be forwarded: its target or a header is not valid.")]
    BadRequest,
    /// The body is larger than allowed.
    #[error("The body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client sends no more.
    #[error("The body did not arrive in time")]
    UploadStalled,
    /// The client broke off.
    #[error("The body could not be read")]
    UploadBroken,
    /// Whoever asked may not have an answer any more.
    #[error(
        "The request was ended: its key is no longer valid, or the sandbox does not run any more. Ask again to be told which."
    )]
    Ended,
    /// Nobody takes the connection.
    #[error(
        "The sandbox's server cannot be reached. It may be restarting: try again, or look at the sandbox's status."
    )]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection ended, or what came is no HTTP.
    #[error("The sandbox's server broke off before it answered. Try again.")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No head in time, or it takes no more of the body.
    #[error("The sandbox's server did not answer in time.")]
    Silent,
}

impl ForwardError {
    /// The status for the client.
    pub fn status(&self) -> u16 {
        match self {
            Self::SandboxFull | Self::OwnerFull => 429,
            Self::Full => 503,
            Self::BadUpgrade | Self::BadRequest | Self::UploadBroken => 400,
            Self::TooLarge(_) => 413,
            Self::UploadStalled => 408,
            Self::Ended => 409,
            Self::Unreachable(_) | Self::Broken(_) => 502,
            Self::Silent => 504,
        }
    }
}
