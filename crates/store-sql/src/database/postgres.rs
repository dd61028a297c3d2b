//! What a connection to Postgres gets beside what its URL says.
//!
//! The URL goes to libpq, so whatever libpq knows works in it: several hosts, `sslmode=require`, `sslmode=verify-full` with
//! `sslrootcert`, `options`, … What follows are defaults for parameters that it does not name.
//!
//! libpq is built with the program (`pq-sys`, feature `bundled`): without Kerberos and LDAP, which it would otherwise load.

use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use secrecy::{ExposeSecret, SecretString};

/// libpq by itself waits for an address that does not answer, and for an answer on a connection whose other end is gone,
/// as long as the kernel does (two minutes and two hours). Seconds; `tcp_user_timeout` in milliseconds.
const DEFAULTS: [(&str, &str); 6] = [
    ("connect_timeout", "5"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "25000"),
    ("application_name", "agent-workspace"),
];

/// Where Debian, Ubuntu and Fedora have the server's socket. A bundled libpq looks in `/tmp`, where its makers have it.
const SOCKETS: &str = "/var/run/postgresql";

/// What the server gives up by itself: a statement, the wait for a lock, a transaction in which nobody says anything.
const SETUP: &str = "SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '60s'; SET TIME ZONE 'UTC';";

/// diesel hands on what the server says and not most of its codes, so it shall say it in English. Only superusers may ask
/// for that, and those whom they let.
const ENGLISH: &str = "DO $$ BEGIN PERFORM set_config('lc_messages', 'C', false); \
    EXCEPTION WHEN insufficient_privilege THEN NULL; END $$";

#[derive(diesel::QueryableByName)]
struct Setting {
    #[diesel(sql_type = diesel::sql_types::Text)]
    value: String,
}

/// Sets a new connection up; says whether the server speaks English on it.
pub(crate) fn set_up(conn: &mut diesel::PgConnection) -> diesel::QueryResult<bool> {
    conn.batch_execute(SETUP)?;
    conn.batch_execute(ENGLISH)?;
    let setting: Setting =
        diesel::sql_query("SELECT current_setting('lc_messages') AS value").get_result(conn)?;
    Ok(is_english(&setting.value))
}

fn is_english(locale: &str) -> bool {
    let language = locale.split(['_', '.', '@']).next().unwrap_or_default();
    matches!(language, "" | "C" | "POSIX" | "en")
}

/// The same for a schema upgrade of a large database. Whoever comes second waits for the first at the advisory lock, which
/// counts as a statement.
pub(crate) const SETUP_FOR_MIGRATION: &str =
    "SET LOCAL statement_timeout = '30min'; SET LOCAL lock_timeout = 0;";

/// Once the advisory lock is held: other replicas serve meanwhile, and a change of a table that waits for one of their
/// transactions makes all others wait for it.
pub(crate) const SETUP_WHEN_MIGRATING: &str = "SET LOCAL lock_timeout = '10s';";

/// The URL with the defaults in it, for this machine.
pub(crate) fn with_defaults(url: &SecretString) -> SecretString {
    completed(url, sockets())
}

/// Where a server of this machine has its socket, unless libpq is told so by its environment.
#[expect(
    clippy::disallowed_methods,
    reason = "libpq itself reads these variables, which are no configuration of ours"
)]
fn sockets() -> Option<&'static str> {
    let is_told = ["PGHOST", "PGHOSTADDR", "PGSERVICE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()));
    (!is_told && Path::new(SOCKETS).is_dir()).then_some(SOCKETS)
}

/// Whether the URL says which host, or how to find out.
fn names_host(url: &str, parameters: &[&str]) -> bool {
    let after = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = after.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    !(host.is_empty() || host.starts_with(':'))
        || ["host", "hostaddr", "service"]
            .iter()
            .any(|name| parameters.contains(name))
}

fn completed(url: &SecretString, sockets: Option<&str>) -> SecretString {
    let mut text = url.expose_secret().to_owned();
    // In libpq's URLs a `?` begins the parameters; elsewhere it is percent-encoded.
    let (given, mut glue) = match text.split_once('?') {
        Some((_, parameters)) => (parameters, '&'),
        None => ("", '?'),
    };
    let named: Vec<&str> = given
        .split('&')
        .filter_map(|parameter| parameter.split('=').next())
        .collect();
    let host = sockets.filter(|_| !names_host(&text, &named));
    let missing: Vec<_> = DEFAULTS
        .into_iter()
        .filter(|(name, _)| !named.contains(name))
        .chain(host.map(|place| ("host", place)))
        .collect();
    if given.is_empty() && glue == '&' {
        text.pop();
        glue = '?';
    }
    for (name, value) in missing {
        text.push(glue);
        text.push_str(name);
        text.push('=');
        text.push_str(value);
        glue = '&';
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(url: &str) -> String {
        let sockets = Some("/sockets");
        super::completed(&url.into(), sockets)
            .expose_secret()
            .to_owned()
    }

    #[test]
    fn english_is_told_by_the_name_of_the_locale() {
        for locale in ["C", "C.UTF-8", "POSIX", "", "en_US.utf8", "en_GB"] {
            assert!(is_english(locale), "{locale}");
        }
        for locale in ["de_DE.UTF-8", "fr_FR", "ja_JP.eucjp", "Swedish_Sweden.1252"] {
            assert!(!is_english(locale), "{locale}");
        }
    }

    #[test]
    fn what_the_url_does_not_name_is_added() {
        for url in ["postgres://u:p@h/db", "postgres://u:p@h/db?"] {
            assert_eq!(
                completed(url),
                "postgres://u:p@h/db?connect_timeout=5&keepalives_idle=10&keepalives_interval=5&keepalives_count=3\
                 &tcp_user_timeout=25000&application_name=agent-workspace"
            );
        }
    }

    #[test]
    fn what_the_url_names_stays() {
        let url = "postgres://a:1,b:2/db?sslmode=verify-full&connect_timeout=60&application_name=x";
        assert_eq!(
            completed(url),
            format!(
                "{url}&keepalives_idle=10&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=25000"
            )
        );
    }

    #[test]
    fn a_url_without_a_host_means_the_socket_of_this_machine() {
        let without = [
            "postgres:///db",
            "postgres://u:p@/db",
            "postgresql://u@?dbname=db",
            "postgres://u@:5433/db",
            "postgres://",
        ];
        for url in without {
            assert!(completed(url).ends_with("&host=/sockets"), "{url}");
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
            assert!(!completed(url).contains("/sockets"), "{url}");
        }
        let nowhere = super::completed(&"postgres:///db".into(), None);
        assert!(!nowhere.expose_secret().contains("host="));
    }
}
