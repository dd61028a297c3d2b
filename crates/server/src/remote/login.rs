//! The commands `login` and `logout`.

use anyhow::{Context as _, anyhow};
use client::{Client, Error};

use super::output::{CommandOutput, plain};
use super::saved_login::{SavedLogin, path};
use settings::EnvVariables;

/// Longest text of a service that is shown.
const MAX_SHOWN_CHARS: usize = 300;

/// Signs in to the service by a browser, and keeps the key.
pub(super) async fn log_in(
    url: &str,
    variables: &EnvVariables,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    path(variables).context("there is no directory for the login: set HOME or XDG_CONFIG_HOME")?;
    let client = Client::new(url, None).map_err(|error| anyhow!("{error}"))?;
    let logins = client.device_logins();
    let code = logins.begin().await.map_err(|error| refused(url, error))?;
    let page = code.verification_uri_complete.as_ref();
    let page = page.unwrap_or(&code.verification_uri);
    output.note(&format!(
        "Open this page in a browser, and confirm the code {}:\n\n  {}\n",
        plain(&code.user_code, 40),
        plain(page, MAX_SHOWN_CHARS)
    ));
    let key = logins
        .wait(&code)
        .await
        .map_err(|error| refused(url, error))?;
    let login = SavedLogin {
        url: client.url().to_string(),
        key: key.expose().into(),
    };
    let file = login.store(variables)?;
    let signed_in = Client::new(url, Some(login.key)).map_err(|error| anyhow!("{error}"))?;
    let keys = signed_in.keys().list().await.map_err(anyhow::Error::new)?;
    let user = keys.into_iter().find(|key| key.is_current);
    let user = user.map_or_else(String::new, |key| {
        format!(" as {}", plain(&key.user_id, 130))
    });
    output.line(&format!(
        "Signed in to {}{user}. The key is in {}, and ends by itself.",
        client.url(),
        file.display()
    ))
}

/// Revokes the key that is kept, and forgets it.
pub(super) async fn log_out(
    variables: &EnvVariables,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let Some(login) = SavedLogin::load(variables)? else {
        return output.line("You are not signed in.");
    };
    let client = Client::new(&login.url, Some(login.key)).map_err(|error| anyhow!("{error}"))?;
    match revoke(&client).await {
        Ok(()) => {}
        // It has ended, or was revoked elsewhere.
        Err(error) if error.refusal().is_some_and(|refusal| refusal.status == 401) => {}
        Err(error) => {
            let file = path(variables).unwrap_or_default();
            return Err(anyhow::Error::new(error)).with_context(|| {
                format!(
                    "the key could not be revoked, so it is kept: try again, or delete {} and revoke the key in the settings of {}",
                    file.display(),
                    login.url
                )
            });
        }
    }
    SavedLogin::remove(variables)?;
    output.line(&format!("Signed out of {}.", login.url))
}

async fn revoke(client: &Client) -> Result<(), Error> {
    let keys = client.keys();
    match keys.list().await?.into_iter().find(|key| key.is_current) {
        Some(current) => keys.revoke(&current.id).await,
        None => Ok(()),
    }
}

fn refused(url: &str, error: Error) -> anyhow::Error {
    let advice = match error.refusal() {
        Some(refusal) if refusal.status == 404 => {
            "The service has no login in a browser (auth.mode is not `accounts`), or this is not its URL. Use an API key."
        }
        Some(refusal) if refusal.message == "expired_token" => {
            "The code was not confirmed in time. Repeat the command."
        }
        Some(refusal) if refusal.message == "access_denied" => {
            "The code was denied in the browser, so this machine is not signed in. The service also denies a user with too many API keys: revoke \
             some in the settings, and repeat the command."
        }
        _ => return anyhow::Error::new(error).context(format!("cannot sign in to {url}")),
    };
    anyhow!("cannot sign in to {url}: {error}\n  {advice}")
}
