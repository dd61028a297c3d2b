//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use domain::id::{ApiKeyId, UserId};
use domain::identity::{MAX_KEY_NAME_CHARS, Role};

use crate::config::parse_duration;
use crate::remote;

/// Runs software-agent conversations in sandboxes, and keeps per-user settings and secrets.
#[derive(Debug, Parser)]
#[command(name = "agent-workspace", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Configuration file (TOML); see the `config` command for what can be set. Else the one in `WORKSPACE_CONFIG`.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

/// Where something is done.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Here, with the configuration and the data of the service.
    #[command(flatten)]
    Local(Command),
    /// At a running service, as one of its users.
    #[command(flatten)]
    Remote(remote::RemoteCommand),
}

/// What to do here.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the service (the default).
    Serve,
    /// Migrate the database to this version's schema, and exit. `serve` does this too.
    Migrate,
    /// Check whether the service could run here, and say what to do about what is wrong. Changes nothing. Exit code 1 if
    /// there is a problem; warnings are none.
    Doctor(Doctor),
    /// Check whether the running service is ready: exit code 0 if it is. Made for container images without an HTTP client.
    Healthcheck,
    /// For process sandboxes: install the agent server now instead of on the first start, and print its command.
    Prepare,
    /// Manage users' API keys. Works while the service runs.
    #[command(subcommand)]
    Keys(Keys),
    /// Manage users: those who have, or had, an API key. Works while the service runs.
    #[command(subcommand)]
    Users(Users),
    /// Manage the master key that seals secrets. Works while the service runs.
    #[command(subcommand)]
    Secrets(Secrets),
    /// Print the `OpenAPI` document.
    Openapi,
    /// Print the effective configuration, secrets redacted, and where each value comes from.
    Config,
}

/// What to do with API keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Create a key, and its user if needed. Prints only the key, and only once.
    Create(Create),
    /// Create a key that replaces another one, which stays valid for a while. Prints only the new key, and only once.
    Rotate(Rotate),
    /// List keys (not their texts).
    List {
        /// Only of this user.
        #[arg(long, value_name = "NAME")]
        user: Option<UserId>,
    },
    /// Revoke a key.
    Revoke {
        /// Its id, from `keys list`.
        id: ApiKeyId,
    },
}

/// What to do with users.
#[derive(Debug, Subcommand)]
pub(crate) enum Users {
    /// List users, including recently deleted ones.
    List,
    /// Change what a user may do: at once where they make their next request, at the latest a second later.
    SetRole {
        /// Whose.
        #[arg(value_name = "NAME")]
        user: UserId,
        /// `user` or `admin`.
        role: Role,
    },
    /// Delete a user permanently, with all data.
    Delete(Delete),
}

/// How `doctor` says it.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON document, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum Secrets {
    /// Seal all secrets with another master key. The one in the data directory is replaced by a new one; one that is given
    /// (`secrets.master_key`, `…_file`) is changed there first, with the former one beside it, see docs/how-to/rotate-the-master-key.md. May be
    /// stopped and run again at any moment.
    RotateKey(RotateKey),
}

/// How to rotate the master key.
#[derive(Debug, Args)]
pub(crate) struct RotateKey {
    /// Only print what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How long to wait for services that do not have the new key yet, or do not use it yet.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = lifetime)]
    pub(crate) wait: std::time::Duration,
    /// How long what is being saved at this moment may take: after that it is looked once more for what was sealed with the
    /// former key. Without it: longer than the database lets anything take (a minute and a half). A shorter time saves
    /// waiting where no service runs, and is a risk where one does.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) settle: Option<std::time::Duration>,
}

/// A user to delete.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Whom.
    #[arg(value_name = "NAME")]
    pub(crate) user: UserId,
    /// Skip the confirmation; required without a terminal.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// A key to make.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Whose key.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: UserId,
    /// How long it is good for, e.g. 12h or 90d. Else forever.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) expires_in: Option<std::time::Duration>,
    /// What the user may do if they are made with this key: `user` or `admin`. Else `user`, the first of all `admin`.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<Role>,
    /// Name of the key.
    #[arg(long, value_name = "TEXT", value_parser = key_name)]
    pub(crate) name: Option<String>,
}

/// A key to replace.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// Its id, from `keys list`.
    pub(crate) id: ApiKeyId,
    /// How long the former key goes on to work, at most; 0s to end it at once.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    pub(crate) grace: std::time::Duration,
    /// How long the new key is good for. Else as long as the former was meant to be.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub(crate) expires_in: Option<std::time::Duration>,
}

fn key_name(text: &str) -> Result<String, String> {
    let is_name = (1..=MAX_KEY_NAME_CHARS).contains(&text.chars().count())
        && !text.chars().any(char::is_control);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| format!("expected 1 to {MAX_KEY_NAME_CHARS} characters in one line"))
}

fn time(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text)
        .ok_or_else(|| "expected a number and a unit (s, m, h, d), e.g. 90d".to_owned())
}

fn lifetime(text: &str) -> Result<std::time::Duration, String> {
    time(text).and_then(|time| {
        let is_some = !time.is_zero();
        is_some
            .then_some(time)
            .ok_or_else(|| "expected more than nothing".to_owned())
    })
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
    fn no_command_means_serve_and_options_go_anywhere() {
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
            &["x", "sandboxes", "logs"],
            &["x", "sandboxes", "logs", "id", "--tail", "10001"],
        ] {
            assert!(Cli::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
