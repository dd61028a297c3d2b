//! Device login: a program without a browser gets an API key of a person who confirms its code in theirs.

use std::time::Duration;

use serde::Deserialize;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::Secret;
use crate::operations;

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Added to the interval when the service asks to poll less often.
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// Longest time for which a program waits, whatever the service says.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// Device logins. These requests need no key.
#[derive(Debug, Clone)]
pub struct DeviceLogins(pub(crate) Client);

/// A device login that waits for a person.
#[derive(Debug, Clone, Deserialize)]
pub struct DeviceCode {
    #[serde(rename = "device_code")]
    secret: Secret,
    /// The code that the person compares or types.
    pub user_code: String,
    /// The page on which they do.
    pub verification_uri: String,
    /// The same page with the code filled in.
    pub verification_uri_complete: Option<String>,
    /// Seconds after which the code is no longer valid.
    pub expires_in: u64,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct IssuedToken {
    access_token: Secret,
}

impl DeviceLogins {
    /// Begins a device login.
    pub async fn begin(&self) -> Result<DeviceCode, Error> {
        let call = Call::to(&operations::BEGIN_DEVICE_LOGIN);
        self.0.ask(&call.form(&[])).await
    }

    /// Waits until a person has confirmed the code, and returns an API key of theirs. The refusal `expired_token` says that
    /// no person did, and `access_denied` that one denied it.
    pub async fn wait(&self, code: &DeviceCode) -> Result<Secret, Error> {
        let mut interval = Duration::from_secs(code.interval.unwrap_or(5).clamp(1, 60));
        let limit = Duration::from_secs(code.expires_in).min(MAX_WAIT);
        let call = Call::to(&operations::POLL_DEVICE_LOGIN).form(&[
            ("grant_type", GRANT_TYPE),
            ("device_code", code.secret.expose()),
        ]);
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(interval).await;
            waited += interval;
            let error = match self.0.ask::<IssuedToken>(&call).await {
                Ok(issued) => return Ok(issued.access_token),
                Err(error) => error,
            };
            match error.refusal().map(|refusal| refusal.message.as_str()) {
                Some("authorization_pending") => {}
                Some("slow_down") => interval += SLOW_DOWN,
                _ if error.is_temporary() => {}
                _ => return Err(error),
            }
            if waited >= limit {
                return Err(error);
            }
        }
    }
}
