//! The `doctor` command: could the service run here?

mod containers;

use std::fmt::Write as _;

use crate::compose::{self, Sandboxes, Variables};
use crate::config::{Config, without_password};
use crate::data_dir::DataDir;
use crate::serve;
use secrecy::ExposeSecret as _;

/// Findings, line by line.
#[derive(Debug, Default)]
pub(crate) struct Report {
    text: String,
    failures: usize,
}

impl Report {
    /// For standard output.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the service could run.
    pub(crate) fn is_healthy(&self) -> bool {
        self.failures == 0
    }

    /// What works, and is not as it could be.
    fn advise(&mut self, what: &str, advice: &str) {
        let _ = writeln!(self.text, "advice  {what}: {advice}");
    }

    fn add<T>(
        &mut self,
        what: &str,
        found: anyhow::Result<T>,
        note: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        // Writing to a String cannot fail.
        match found {
            Ok(found) => {
                let _ = writeln!(self.text, "ok      {what}: {}", note(&found));
                Some(found)
            }
            Err(error) => {
                self.failures += 1;
                let _ = writeln!(self.text, "FAILED  {what}: {error:#}");
                None
            }
        }
    }
}

/// Checks everything, also after a failure. Opens what `serve` would open (and so makes what is missing).
pub(crate) async fn examine(config: &Config, variables: &Variables) -> Report {
    let mut report = Report::default();
    let path = config.data_dir.display().to_string();
    let data_dir = report.add("data directory", DataDir::open(&config.data_dir), |_| path);
    let Some(data_dir) = data_dir else {
        return report;
    };
    report.add("data directory is writable", write_to(&data_dir), |()| {
        "yes".to_owned()
    });
    let lock = data_dir.lock();
    let is_running = lock.is_err();
    let note = if is_running {
        "a service is running on it"
    } else {
        "no service is running on it"
    };
    report.add("use", Ok(()), |()| note.to_owned());

    let keyring = compose::open_keyring(config, &data_dir);
    report.add("master key", keyring, |keyring| {
        format!("key {}", keyring.key_id())
    });
    let store = compose::open_store(config).await;
    let url = without_password(config.storage.url.expose_secret());
    report.add("store", store, |_| url);
    let sandboxes = open_sandboxes(config, variables, &data_dir).await;
    let sandboxes = report.add("sandboxes", sandboxes, |sandboxes| {
        format!("{} ({})", sandboxes.backend.name(), sandboxes.why)
    });
    match sandboxes {
        Some(Sandboxes {
            engine: Some(engine),
            ..
        }) => containers::examine(config, &engine, &mut report).await,
        Some(Sandboxes { backend, .. }) => {
            let agent_server = compose::agent_server_outlook(config, variables).await;
            report.add("agent server", agent_server, Clone::clone);
            // It would also ask for an installed agent server.
            if config.sandbox.agent_server_command.is_some() {
                let usable = backend.check().await.map_err(anyhow::Error::from);
                report.add("processes", usable, |()| "can be started".to_owned());
            }
        }
        None => {}
    }
    let address = config.http.bind;
    let bound = if is_running {
        Ok(())
    } else {
        serve::listen(address).map(drop)
    };
    report.add("address", bound, |()| {
        let by = if is_running {
            " (presumably taken by the running service)"
        } else {
            ""
        };
        format!("{address}{by}")
    });
    report
}

fn write_to(data_dir: &DataDir) -> anyhow::Result<()> {
    let path = data_dir
        .path()
        .join(format!(".doctor-{}", std::process::id()));
    std::fs::write(&path, b"doctor")?;
    Ok(std::fs::remove_file(&path)?)
}

async fn open_sandboxes(
    config: &Config,
    variables: &Variables,
    data_dir: &DataDir,
) -> anyhow::Result<Sandboxes> {
    let host = data_dir.host(compose::ids().as_ref())?;
    compose::open_sandboxes(config, variables, &host, data_dir.backend()?.as_deref()).await
}
