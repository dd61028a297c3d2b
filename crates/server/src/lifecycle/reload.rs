//! Reloads the configuration on SIGHUP: the log level, and limits that apply to new work. Other changes need a restart, and
//! the log names them.

use application::App;
use http_api::HttpState;

use crate::compose;
use crate::config::Config;
use crate::logging::LogLevelHandle;
use settings::EnvVariables;

/// Keys that apply without a restart, or their prefixes. CORS origins are not among them: agent servers keep those of their
/// start.
const RELOADABLE_KEYS: [&str; 6] = [
    "http.requests_per_second",
    "log.level",
    "quota.",
    "retention.",
    "sandbox.max_running",
    "sandbox.max_running_per_user",
];

fn is_reloadable(key: &str) -> bool {
    RELOADABLE_KEYS
        .iter()
        .any(|reloadable| match reloadable.strip_suffix('.') {
            Some(_) => key.starts_with(reloadable),
            None => key == *reloadable,
        })
}

pub(crate) struct ConfigReloader<'a> {
    /// The configuration at start.
    started: &'a Config,
    /// The environment at start, which does not change.
    variables: &'a EnvVariables,
    level: &'a LogLevelHandle,
    app: App,
    http: HttpState,
    /// The configuration of the last reload, if any.
    last: Option<Config>,
}

impl<'a> ConfigReloader<'a> {
    pub(crate) fn new(
        (started, variables, level): (&'a Config, &'a EnvVariables, &'a LogLevelHandle),
        app: App,
        http: HttpState,
    ) -> Self {
        Self {
            started,
            variables,
            level,
            app,
            http,
            last: None,
        }
    }

    /// Reads the file and applies the reloadable keys. An invalid file changes nothing.
    pub(crate) fn reload(&mut self) {
        let config = match self.started.reload(compose::BACKENDS, self.variables) {
            Ok(config) => config,
            Err(error) => {
                let problems = error.on_one_line();
                tracing::warn!(
                    "the configuration was not reloaded, and nothing has changed: {problems}"
                );
                return;
            }
        };
        self.level.set(&config.log);
        self.app.set_caps(compose::caps(&config));
        self.app.set_retention(config.retention);
        self.app.set_quota(config.quota);
        self.http
            .set_requests_per_second(config.http.limits.requests_per_second);
        let before = self.last.as_ref().unwrap_or(self.started);
        let mut changed = before.changed_keys(&config);
        changed.retain(|key| is_reloadable(key));
        if changed.is_empty() {
            tracing::info!("configuration reloaded: no reloadable setting has changed");
        } else {
            tracing::info!("configuration reloaded: {}", changed.join(", "));
        }
        let mut unapplied = self.started.changed_keys(&config);
        unapplied.retain(|key| !is_reloadable(key));
        if !unapplied.is_empty() {
            let keys = unapplied.join(", ");
            tracing::warn!("these changed settings need a restart of the service: {keys}");
        }
        self.last = Some(config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reloadable_keys_exist() {
        let config = Config::load(
            compose::BACKENDS,
            None,
            &[("HOME".into(), "/home/someone".into())],
        )
        .unwrap();
        let shown: toml::Table = config.as_toml().parse().unwrap();
        for key in RELOADABLE_KEYS {
            let (section, name) = key.split_once('.').unwrap();
            let section = shown[section].as_table().unwrap();
            assert!(name.is_empty() || section.contains_key(name), "{key}");
        }
        assert!(is_reloadable("retention.audit") && is_reloadable("log.level"));
        assert!(!is_reloadable("log.format") && !is_reloadable("sandbox.max_running_per_host"));
    }
}
