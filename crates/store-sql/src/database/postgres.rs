//! Defaults and session settings of Postgres connections.
//!
//! libpq parses the URL, so all its parameters work: several hosts, `sslmode=require`, `sslmode=verify-full` with
//! `sslrootcert`, `options`, … This module adds defaults for missing parameters.
//!
//! The build compiles libpq (`pq-sys`, feature `bundled`) without Kerberos and LDAP. The system's libpq would load both.

use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::Text;
use secrecy::{ExposeSecret, SecretString};

/// Without these, libpq waits as long as the kernel: two minutes for an unreachable address, two hours on a dead connection.
/// In seconds, `tcp_user_timeout` in milliseconds.
const DEFAULT_URL_PARAMETERS: [(&str, &str); 6] = [
    ("connect_timeout", "5"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "25000"),
    ("application_name", "agent-workspace"),
];

/// Directory of the server's socket on Debian, Ubuntu and Fedora. The bundled libpq would look in `/tmp`.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";

/// Server-side timeouts of statements, lock waits and idle transactions.
const SESSION_SETUP: &str = "SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '60s'; SET TIME ZONE 'UTC';";

/// Requests English messages, because diesel passes on messages but few error codes. Only superusers, and roles that a superuser
/// has permitted, may change this setting.
const ENGLISH_MESSAGES: &str = "DO $$ BEGIN PERFORM set_config('lc_messages', 'C', false); \
    EXCEPTION WHEN insufficient_privilege THEN NULL; END $$";

/// Configures a new connection. Returns whether the server's messages are in English.
pub(crate) fn set_up(conn: &mut diesel::PgConnection) -> diesel::QueryResult<bool> {
    conn.batch_execute(SESSION_SETUP)?;
    conn.batch_execute(ENGLISH_MESSAGES)?;
    let locale = select(sql::<Text>("current_setting('lc_messages')"));
    Ok(is_english(&locale.get_result::<String>(conn)?))
}

fn is_english(locale: &str) -> bool {
    let language = locale.split(['_', '.', '@']).next().unwrap_or_default();
    matches!(language, "" | "C" | "POSIX" | "en")
}

/// Timeouts for migrations of a large database. A second process waits at the advisory lock, and this wait counts as a
/// statement.
pub(crate) const MIGRATION_SESSION_SETUP: &str =
    "SET LOCAL statement_timeout = '30min'; SET LOCAL lock_timeout = 0;";

/// Lock timeout once the advisory lock is held. Other replicas serve meanwhile. While `ALTER TABLE` waits for one of their
/// transactions, all other statements wait behind it.
pub(crate) const MIGRATION_TRANSACTION_SETUP: &str = "SET LOCAL lock_timeout = '10s';";

/// The URL with the defaults of this machine added.
pub(crate) fn with_defaults(url: &SecretString) -> SecretString {
    add_missing_parameters(url, default_socket_directory())
}

/// Directory of a local server's socket, unless libpq's environment names it.
#[expect(
    clippy::disallowed_methods,
    reason = "libpq itself reads these variables, which are not settings of this service"
)]
fn default_socket_directory() -> Option<&'static str> {
    let is_configured = ["PGHOST", "PGHOSTADDR", "PGSERVICE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    (!is_configured && Path::new(SOCKET_DIRECTORY).is_dir()).then_some(SOCKET_DIRECTORY)
}

/// Whether the URL names a host or a service that defines it.
fn names_host(url: &str, parameters: &[&str]) -> bool {
    let after = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = after.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    !(host.is_empty() || host.starts_with(':'))
        || ["host", "hostaddr", "service"]
            .iter()
            .any(|name| parameters.contains(name))
}

fn add_missing_parameters(url: &SecretString, socket_directory: Option<&str>) -> SecretString {
    let mut text = url.expose_secret().to_owned();
    // In libpq's URLs, `?` begins the parameters and is percent-encoded elsewhere.
    let (given, mut separator) = match text.split_once('?') {
        Some((_, parameters)) => (parameters, '&'),
        None => ("", '?'),
    };
    let named: Vec<&str> = given
        .split('&')
        .filter_map(|parameter| parameter.split('=').next())
        .collect();
    let host = socket_directory.filter(|_| !names_host(&text, &named));
    let missing: Vec<_> = DEFAULT_URL_PARAMETERS
        .into_iter()
        .filter(|(name, _)| !named.contains(name))
        .chain(host.map(|directory| ("host", directory)))
        .collect();
    if given.is_empty() && separator == '&' {
        text.pop();
        separator = '?';
    }
    for (name, value) in missing {
        text.push(separator);
        text.push_str(name);
        text.push('=');
        text.push_str(value);
        separator = '&';
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(url: &str) -> String {
        add_missing_parameters(&url.into(), Some("/sockets"))
            .expose_secret()
            .to_owned()
    }

    #[test]
    fn english_is_recognised_by_the_locale() {
        for locale in ["C", "C.UTF-8", "POSIX", "", "en_US.utf8", "en_GB"] {
            assert!(is_english(locale), "{locale}");
        }
        for locale in ["de_DE.UTF-8", "fr_FR", "ja_JP.eucjp", "Swedish_Sweden.1252"] {
            assert!(!is_english(locale), "{locale}");
        }
    }

    #[test]
    fn missing_parameters_are_added() {
        for url in ["postgres://u:p@h/db", "postgres://u:p@h/db?"] {
            assert_eq!(
                complete(url),
                "postgres://u:p@h/db?connect_timeout=5&keepalives_idle=10&keepalives_interval=5&keepalives_count=3\
                 &tcp_user_timeout=25000&application_name=agent-workspace"
            );
        }
    }

    #[test]
    fn parameters_of_the_url_are_kept() {
        let url = "postgres://a:1,b:2/db?sslmode=verify-full&connect_timeout=60&application_name=x";
        assert_eq!(
            complete(url),
            format!(
                "{url}&keepalives_idle=10&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=25000"
            )
        );
    }

    #[test]
    fn a_url_without_a_host_uses_the_local_socket() {
        let without = [
            "postgres:///db",
            "postgres://u:p@/db",
            "postgresql://u@?dbname=db",
            "postgres://u@:5433/db",
            "postgres://",
        ];
        for url in without {
            assert!(complete(url).ends_with("&host=/sockets"), "{url}");
        }
        let with = [
            "postgres://h/db",
            "postgres://%2Ftmp/db",
            "postgres://[::1]/db",
            "postgres:///db?host=/tmp",
            "postgres:///db?service=mine",
            "postgres:///db?hostaddr=127.0.0.1",
        ];
        for url in with {
            assert!(!complete(url).contains("/sockets"), "{url}");
        }
        let without_directory = add_missing_parameters(&"postgres:///db".into(), None);
        assert!(!without_directory.expose_secret().contains("host="));
    }
}
