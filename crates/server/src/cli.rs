//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use domain::id::{ApiKeyId, HostId, UserId};
use domain::user::identity::{MAX_KEY_NAME_CHARS, Role};
use url::Url;

use crate::config::{parse_duration, registry};
use crate::remote;

/// Runs software-agent conversations in sandboxes, and keeps per-user settings and secrets.
#[derive(Debug, Parser)]
#[command(name = "agent-workspace", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Configuration file (TOML). Default: the file that `WORKSPACE_CONFIG` names. The command `config` prints all keys.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

/// Commands by the place where they act.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// On this machine, with the configuration and the data of the service.
    #[command(flatten)]
    Local(Command),
    /// At a running service, as one of its users.
    #[command(flatten)]
    Remote(remote::RemoteCommand),
}

/// Commands that act on the configuration and the data of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the service (the default).
    Serve,
    /// Migrate the database to this version's schema, and exit. `serve` does this too.
    Migrate,
    /// Check whether the service can run on this machine, and print advice for each problem. Changes nothing. Exit code 1 if
    /// there is a problem, 0 if there are only warnings.
    Doctor(Doctor),
    /// Check whether the running service is ready: exit code 0 if it is. For container images without an HTTP client.
    Healthcheck,
    /// Install the agent server for process sandboxes now instead of at the first start, and print its command.
    Prepare,
    /// Manage the web application at `/`.
    #[command(subcommand)]
    Web(Web),
    /// Manage users' API keys. Works while the service runs.
    #[command(subcommand)]
    Keys(Keys),
    /// Manage users, the accounts that API keys belong to. Works while the service runs.
    #[command(subcommand)]
    Users(Users),
    /// List and drain the hosts that share the database. Works while the service runs.
    #[command(subcommand)]
    Hosts(Hosts),
    /// Manage the master key that seals secrets. Works while the service runs.
    #[command(subcommand)]
    Secrets(Secrets),
    /// Print the `OpenAPI` document.
    Openapi,
    /// Write shell completions and man pages into a directory, for packages.
    #[command(hide = true)]
    Manual { dir: PathBuf },
    /// Print the effective configuration, secrets redacted, and where each value comes from.
    Config,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Create a key, and its user if needed. Prints only the key, and only once.
    Create(Create),
    /// Create a key that replaces another one, which stays valid for a grace period. Prints only the new key, and only once.
    Rotate(Rotate),
    /// List keys: their ids, prefixes, users and dates, never the keys themselves.
    List {
        /// List only the keys of this user.
        #[arg(long, value_name = "NAME")]
        user: Option<UserId>,
    },
    /// Revoke a key.
    Revoke {
        /// Id of the key, from `keys list`.
        id: ApiKeyId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Users {
    /// List users, including recently deleted ones.
    List,
    /// Change the role of a user. The service applies it within a second.
    SetRole {
        /// Name of the user.
        #[arg(value_name = "NAME")]
        user: UserId,
        /// The new role: `user` or `admin`.
        role: Role,
    },
    /// Make a link by which a user sets a password: an invitation, or a reset. Prints the link only once. Needs
    /// auth.mode = "accounts".
    Link(Link),
    /// Set the e-mail address of a user, as a verified one: a login at an identity provider with the same address can then
    /// belong to the user (`link_verified_email`), and links for a forgotten password are mailed to it. Without an address,
    /// removes it.
    Email(Email),
    /// Delete a user permanently, with all data.
    Delete(Delete),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hosts {
    /// List hosts: whether they take starts, when their service was last known to run, and what runs on them.
    List,
    /// Let a host take no new starts, for example before it is taken down. Its sandboxes keep running.
    Drain {
        /// Id of the host, from `hosts list`.
        #[arg(value_name = "NAME")]
        host: HostId,
    },
    /// Let a drained host take new starts again.
    Undrain {
        /// Id of the host, from `hosts list`.
        #[arg(value_name = "NAME")]
        host: HostId,
    },
    /// Remove a lost host that does not return, with its sandboxes. Conversations in them stay, and show MISSING.
    Remove {
        /// Id of the host, from `hosts list`.
        #[arg(value_name = "NAME")]
        host: HostId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Web {
    /// Install the web application now instead of at the first start, and print its directory. Works while the service runs.
    Install(WebInstall),
}

#[derive(Debug, Args)]
pub(crate) struct WebInstall {
    /// Install from this archive of the package instead of downloading it. Its digest must be that of the pinned version.
    #[arg(long, value_name = "FILE.tgz", conflicts_with = "registry")]
    pub(crate) from: Option<PathBuf>,
    /// Download from this npm registry. Default: the setting `web.registry`.
    #[arg(long, value_name = "URL", value_parser = registry_url)]
    pub(crate) registry: Option<Url>,
}

#[derive(Debug, Args)]
pub(crate) struct Email {
    /// Name of the user.
    #[arg(value_name = "NAME")]
    pub(crate) user: UserId,
    /// The address, for example ada@example.org.
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Name of the user.
    #[arg(value_name = "NAME")]
    pub(crate) user: UserId,
    /// Create the user, with the role `user`, if there is none of this name.
    #[arg(long)]
    pub(crate) create: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON document, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Secrets {
    /// Seal all secrets with a new master key. A key in the data directory is replaced by a generated one. A configured key
    /// (`secrets.master_key`, `…_file`) must be changed in the configuration first, see
    /// docs/how-to/rotate-the-master-key.md. The command may be interrupted and run again at any moment.
    RotateKey(RotateKey),
}

#[derive(Debug, Args)]
pub(crate) struct RotateKey {
    /// Print what the rotation would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Maximum time to wait until all running services have the new key, and until they seal with it.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = lifetime)]
    pub(crate) wait: Duration,
    /// Time to wait for writes in progress, which may still seal with the former key, before the last search for such
    /// secrets. Default: longer than any write can take (a minute and a half). Shorten it only while no service runs.
    #[arg(long, value_name = "TIME", value_parser = lifetime, alias = "settle")]
    pub(crate) write_grace: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Name of the user.
    #[arg(value_name = "NAME")]
    pub(crate) user: UserId,
    /// Skip the confirmation; required without a terminal.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name of the key's user.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: UserId,
    /// Time until the key expires, e.g. 12h or 90d. Default: it never expires.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) expires_in: Option<Duration>,
    /// Role of the user if this command creates the user: `user` or `admin`. Default: `admin` for the first user, else `user`.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<Role>,
    /// Name of the key.
    #[arg(long, value_name = "TEXT", value_parser = key_name)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// Id of the key to replace, from `keys list`.
    pub(crate) id: ApiKeyId,
    /// Maximum time for which the former key stays valid; 0s revokes it at once.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    pub(crate) grace: Duration,
    /// Time until the new key expires. Default: the lifetime with which the former key was created.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) expires_in: Option<Duration>,
}

fn registry_url(text: &str) -> Result<Url, String> {
    registry(text)
        .ok_or_else(|| "expected an http or https URL without a user and a password".to_owned())
}

fn key_name(text: &str) -> Result<String, String> {
    let is_name = (1..=MAX_KEY_NAME_CHARS).contains(&text.chars().count())
        && !text.chars().any(char::is_control);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| format!("expected 1 to {MAX_KEY_NAME_CHARS} characters without line breaks and other control characters"))
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| "expected a number and a unit (s, m, h, d), e.g. 90d".to_owned())
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("expected a time longer than 0".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_and_values_are_checked() {
        assert!(Cli::try_parse_from(["x"]).unwrap().command.is_none());
        let cli = Cli::try_parse_from(["x", "keys", "list", "--config", "f"]).unwrap();
        assert_eq!(cli.config, Some("f".into()));
        for bad in [
            &["x", "keys", "create"][..],
            &["x", "keys", "create", "--user", "a b"],
            &["x", "keys", "create", "--user", "a", "--expires-in", "0d"],
            &["x", "keys", "create", "--user", "a", "--role", "root"],
            &["x", "keys", "create", "--user", "a", "--name", "a\nb"],
            &["x", "keys", "rotate", "not-an-id"],
            &["x", "users", "set-role", "a", "root"],
            &["x", "keys", "revoke", "not-an-id"],
            &["x", "users", "delete"],
            &["x", "users", "delete", "a b", "--yes"],
            &["x", "conversations", "start", "--branch", "b"],
            &["x", "conversations", "list", "--limit", "0"],
            &["x", "conversations", "list", "--all", "--limit", "5"],
            &["x", "conversations", "list", "--key", "aw_1"],
            &["x", "web"],
            &["x", "web", "install", "--registry", "registry.example"],
            &["x", "sandboxes", "logs"],
            &["x", "sandboxes", "logs", "id", "--tail", "10001"],
        ] {
            assert!(Cli::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
