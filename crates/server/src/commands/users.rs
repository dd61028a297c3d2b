//! The `users` command.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use application::sign_in::new_link;
use application::single_user::refuse_second_user;
use application::users;
use domain::error::{Classify as _, ErrorClass};
use domain::id::UserId;
use domain::user::administration::AdminChange;
use domain::user::identity::{PurgeCounts, Role, User, UserRepository};
use domain::user::sign_in::{SignInChange, UserEmail};

use super::{administer, column_width, keys, seconds};
use crate::cli::{Delete, Email, Link, Users};
use crate::compose::{self, Store};
use crate::config::{AuthModeSetting, Config};
use crate::data_dir::DataDir;
use crate::password_link::link_text;

const PAGE_LENGTH: usize = 500;

pub(crate) async fn run(command: Users, config: &Config) -> anyhow::Result<String> {
    let (data_dir, store) = super::open(config).await?;
    match command {
        Users::List => Ok(table(&list(store.as_ref()).await?)),
        Users::SetRole { user, role } => {
            let message = format!("{user} now has the role {}\n", role.as_str());
            let change = AdminChange::SetRole { user, role };
            administer(&store, "users set-role", &change).await?;
            Ok(message)
        }
        Users::Link(link) => self::link(link, config, (&data_dir, &store)).await,
        Users::Email(email) => set_email(email, &store).await,
        Users::Delete(delete) => {
            self::delete(delete, config.auth.local_user().as_ref(), &store).await
        }
    }
}

pub(crate) async fn list(store: &dyn UserRepository) -> anyhow::Result<Vec<User>> {
    let mut all: Vec<User> = Vec::new();
    loop {
        let after = all.last().map(|user| &user.id);
        let page = store.list(after, PAGE_LENGTH).await;
        let page = page.context("cannot read the users")?;
        let is_last = page.len() < PAGE_LENGTH;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Makes a link by which the user sets a password: an invitation or a reset.
async fn link(
    Link { user, create }: Link,
    config: &Config,
    (data_dir, store): (&DataDir, &Store),
) -> anyhow::Result<String> {
    if config.auth.mode != AuthModeSetting::Accounts {
        bail!("users of this service do not sign in: set auth.mode = \"accounts\" first");
    }
    if !config.http.is_url_configured() && config.http.bind.port() == 0 {
        bail!(
            "http.bind has port 0, so the link's port is unknown: set WORKSPACE_HTTP__PUBLIC_URL"
        );
    }
    if create && let Some(rule) = keys::single_user(config, data_dir)? {
        refuse_second_user(rule, store, &user).await?;
    }
    let (ids, now) = (compose::ids(), compose::clock().now());
    let new = new_link(ids.as_ref(), now, &user);
    let expires = seconds(new.link.expires_at);
    let change = AdminChange::SignIn(SignInChange::CreateLink {
        link: new.link,
        new_user: create.then_some(Role::User),
    });
    match administer(store, "users link", &change).await {
        Err(error) if error.class() == ErrorClass::NotFound => bail!(
            "there is no user {user}: `agent-workspace users list` lists all, and --create makes the user"
        ),
        result => result.with_context(|| format!("cannot store a link for {user}"))?,
    };
    let link = link_text(&config.http.public_url(config.http.bind), &new.token);
    let mut err = std::io::stderr();
    // The link alone is the output, for scripts.
    let _ = writeln!(
        err,
        "The link sets the password of {user}. It works once, until {expires}:"
    );
    Ok(format!("{link}\n"))
}

/// Sets or removes a user's address. The operator vouches for it.
async fn set_email(Email { user, address }: Email, store: &Store) -> anyhow::Result<String> {
    let parsed = address.as_deref().map(UserEmail::parse_address);
    let address = match parsed {
        None => None,
        Some(None) => bail!("this is not an e-mail address: it needs the form name@example.org"),
        Some(address) => address,
    };
    let message = match &address {
        Some(address) => format!("{user} now has the address {address}\n"),
        None => format!("{user} has no address any more\n"),
    };
    let email = address.map(|address| UserEmail {
        address,
        is_verified: true,
    });
    let change = SignInChange::SetEmail {
        user: user.clone(),
        email,
    };
    match administer(store, "users email", &AdminChange::SignIn(change)).await {
        Err(error) if error.class() == ErrorClass::NotFound => {
            bail!("there is no user {user}: `agent-workspace users list` lists all")
        }
        result => result.with_context(|| format!("cannot set the address of {user}"))?,
    };
    Ok(message)
}

/// `local`: the user of all requests in open mode.
async fn delete(
    Delete { user, yes }: Delete,
    local: Option<&UserId>,
    store: &Store,
) -> anyhow::Result<String> {
    if local == Some(&user) {
        bail!(
            "requests need no key here (auth.mode = \"open\"), and all of them act as {user}: set auth.mode = \"api_key\" \
             before you delete {user}"
        );
    }
    if !yes {
        confirm(&user)?;
    }
    let change = AdminChange::DeleteUser { user: user.clone() };
    let mut counts = match administer(store, "users delete", &change).await {
        Err(error) if error.class() == ErrorClass::NotFound => {
            bail!("there is no user {user}: `agent-workspace users list` lists all")
        }
        result => result.with_context(|| format!("cannot delete {user}"))?,
    };
    let clock = compose::clock();
    let purged = users::purge(store, clock.as_ref(), &user);
    let purged = purged.await.with_context(|| {
        format!(
            "the deletion of {user} may be incomplete: run this command again (the service also continues it)"
        )
    })?;
    match purged {
        Some(purged) => {
            counts += purged;
            Ok(summary(&user, &counts))
        }
        None => bail!("there is no user {user}: `agent-workspace users list` lists all"),
    }
}

fn confirm(user: &UserId) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("cannot ask for confirmation without a terminal: add --yes to delete {user}");
    }
    let mut out = std::io::stderr();
    write!(
        out,
        "This permanently deletes {user} with all conversations, settings, secrets, API keys and sandboxes.\nType the \
             name to continue:"
    )
    .and_then(|()| out.flush())
    .context("cannot print the question for confirmation")?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.context("cannot read the confirmation")?;
    if answer.trim() != user.as_str() {
        bail!("the typed name differs; nothing is deleted");
    }
    Ok(())
}

fn summary(user: &UserId, purged: &PurgeCounts) -> String {
    let mut text = format!("deleted {user}:");
    for (count, one, many) in [
        (purged.api_keys, "API key", "API keys"),
        (
            purged.settings,
            "document of settings",
            "documents of settings",
        ),
        (purged.secrets, "secret", "secrets"),
        (purged.conversations, "conversation", "conversations"),
        (purged.events, "event", "events"),
        (purged.start_tasks, "start task", "start tasks"),
        (purged.others, "other record", "other records"),
    ] {
        if count > 0 {
            let what = if count == 1 { one } else { many };
            // Writing to a String cannot fail.
            let _ = write!(text, " {count} {what},");
        }
    }
    if text.ends_with(':') {
        text += " nothing was left,";
    }
    text.pop();
    text.push('\n');
    if purged.sandboxes > 0 {
        let (count, pronoun) = match purged.sandboxes {
            1 => ("1 sandbox is".to_owned(), "it"),
            count => (format!("{count} sandboxes are"), "them"),
        };
        let _ = writeln!(
            text,
            "{count} removed within half a minute by the service that runs {pronoun}, or when it is started again"
        );
    }
    text
}

fn table(users: &[User]) -> String {
    let width = column_width(users.iter().map(|user| user.id.as_str()));
    let mut text = format!("{:width$}  {:5}  {:20}  STATE\n", "USER", "ROLE", "SINCE");
    for user in users {
        let state = user.deleted_at.map_or_else(
            || "active".to_owned(),
            |at| format!("deleted {}", seconds(at)),
        );
        let since = seconds(user.created_at);
        let role = user.role.as_str();
        let _ = writeln!(
            text,
            "{:width$}  {role:5}  {since:20}  {state}",
            user.id.as_str()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use domain::clock::Timestamp;
    use domain::user::identity::Role;

    use super::*;

    #[test]
    fn the_table_marks_deleted_users() {
        let at = Timestamp::from_micros(1_795_251_552_215_877);
        let user = |name: &str, deleted_at| User {
            id: UserId::parse(name).unwrap(),
            role: Role::Admin,
            created_at: at,
            deleted_at,
            disabled_at: None,
        };
        let table = table(&[user("alice", None), user("bob", Some(at))]);
        let lines: Vec<&str> = table.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "alice  admin  2026-11-21T08:59:12Z  active",
                "bob    admin  2026-11-21T08:59:12Z  deleted 2026-11-21T08:59:12Z"
            ]
        );
    }

    #[test]
    fn the_summary_counts_deleted_records() {
        let alice = UserId::parse("alice").unwrap();
        let nothing = summary(&alice, &PurgeCounts::default());
        assert_eq!(nothing, "deleted alice: nothing was left\n");
        let counts = PurgeCounts {
            api_keys: 1,
            conversations: 2,
            events: 30,
            sandboxes: 1,
            ..PurgeCounts::default()
        };
        let text = summary(&alice, &counts);
        let mut lines = text.lines();
        let first = lines.next().unwrap();
        assert_eq!(
            first,
            "deleted alice: 1 API key, 2 conversations, 30 events"
        );
        assert!(lines.next().unwrap().starts_with("1 sandbox is removed"));
    }
}
