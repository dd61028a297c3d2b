//! Errors of forwarded requests.

use thiserror::Error;

/// Why a request failed. The text is for the client and says what to do; the source is for the log.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// The limit of all requests is reached.
    #[error("Too many requests are being forwarded to sandboxes. Try again.")]
    Full,
    /// The limit of one sandbox is reached.
    #[error("Too many requests or sockets of this sandbox are open. Close some, or try again.")]
    SandboxFull,
    /// The limit of one owner's sandboxes is reached.
    #[error(
        "Too many requests or sockets of this user's sandboxes are open. Close some, or try again."
    )]
    OwnerFull,
    /// An upgrade in a form that cannot be forwarded.
    #[error(
        "Invalid upgrade: send a GET without a body and with `Connection: Upgrade`. A reverse proxy may have removed that \
         header."
    )]
    BadUpgrade,
    /// The request has no valid form for the upstream.
    #[error("The request cannot be forwarded: its target or a header is not valid.")]
    BadRequest,
    /// The body exceeds the limit in bytes.
    #[error("The body is larger than the {0} bytes allowed. Send less.")]
    TooLarge(u64),
    /// The client stopped sending.
    #[error("The body did not arrive in time. Send the request again.")]
    UploadStalled,
    /// The client disconnected.
    #[error("The body could not be read. Send the request again.")]
    UploadDisconnected,
    /// The caller lost access before the response.
    #[error(
        "The request was ended: its key is no longer valid, or the sandbox does not run any more. Repeat the request to see which."
    )]
    Ended,
    /// The upstream accepts no connection.
    #[error(
        "The sandbox's server cannot be reached. It may be restarting: try again, or look at the sandbox's status."
    )]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection ended, or the response is not valid HTTP.
    #[error("The sandbox's server closed the connection before it responded. Try again.")]
    UpstreamDisconnected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response head did not arrive in time, or the upstream stopped reading the body.
    #[error(
        "The sandbox's server did not answer in time. Try again, or look at the sandbox's status."
    )]
    UpstreamTimedOut,
}

impl ForwardError {
    /// The HTTP status for the client.
    pub fn status(&self) -> u16 {
        match self {
            Self::SandboxFull | Self::OwnerFull => 429,
            Self::Full => 503,
            Self::BadUpgrade | Self::BadRequest | Self::UploadDisconnected => 400,
            Self::TooLarge(_) => 413,
            Self::UploadStalled => 408,
            Self::Ended => 409,
            Self::Unreachable(_) | Self::UpstreamDisconnected(_) => 502,
            Self::UpstreamTimedOut => 504,
        }
    }
}
