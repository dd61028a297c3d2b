//! Section `metrics`.

use std::net::SocketAddr;

use secrecy::SecretString;
use settings::SettingReader;

use super::http::{HttpSettings, address};

#[derive(Debug, Clone)]
pub(crate) struct MetricsSettings {
    /// The key for `/metrics` on the public listener; without one, it is public.
    pub(crate) key: Option<SecretString>,
    /// A separate address, which needs no key; port 0 takes any port.
    pub(crate) bind: Option<SocketAddr>,
}

impl MetricsSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>, http: &HttpSettings) -> Self {
        let expected = "an address and a port, e.g. 127.0.0.1:9464";
        let bind = reader.optional_parsed("metrics.bind", expected, address);
        if bind.is_some_and(|bind| bind.port() != 0 && bind == http.bind) {
            let problem = "equals http.bind: leave it empty to serve /metrics there";
            reader.problem("metrics.bind", problem);
        }
        Self {
            key: reader.key_text("metrics.key"),
            bind,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::compose::BACKENDS;
    use crate::config::Config;

    #[test]
    fn the_address_of_metrics_differs_from_the_public_one() {
        let load = |http: &str, metrics: &str| {
            let variables = [
                ("HOME".into(), "/home/someone".into()),
                ("WORKSPACE_HTTP__BIND".into(), http.into()),
                ("WORKSPACE_METRICS__BIND".into(), metrics.into()),
            ];
            Config::load(BACKENDS, None, &variables)
                .map(|config| config.metrics.bind.map(|bind| bind.to_string()))
        };
        for (http, metrics, expected) in [
            ("127.0.0.1:1", "", None),
            ("127.0.0.1:1", "localhost:2", Some("127.0.0.1:2")),
            ("127.0.0.1:1", "10.0.0.5:1", Some("10.0.0.5:1")),
            ("127.0.0.1:0", "127.0.0.1:0", Some("127.0.0.1:0")),
        ] {
            assert_eq!(
                load(http, metrics).unwrap().as_deref(),
                expected,
                "{http} {metrics}"
            );
        }
        for (http, metrics) in [("127.0.0.1:1", "127.0.0.1:1"), ("127.0.0.1:1", "9464")] {
            let problem = load(http, metrics).unwrap_err().to_string();
            assert!(problem.contains("WORKSPACE_METRICS__BIND"), "{problem}");
        }
    }
}
