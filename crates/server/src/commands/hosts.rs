//! The `hosts` command.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use domain::clock::Timestamp;
use domain::coordination::host::{Host, HostRepository as _, HostStatus};
use domain::id::HostId;

use super::{column_width, seconds};
use crate::cli::Hosts;
use crate::compose;
use crate::config::Config;

pub(crate) async fn run(command: Hosts, config: &Config) -> anyhow::Result<String> {
    let (_data_dir, store) = super::open(config).await?;
    let set_draining = async |host: &HostId, is_draining| {
        let known = store.set_draining(host, is_draining).await;
        if !known.context("cannot change the host")? {
            bail!("there is no host {host}: `agent-workspace hosts list` names all");
        }
        Ok(())
    };
    match command {
        Hosts::List => {
            let hosts = store.list().await.context("cannot read the hosts")?;
            Ok(table(&hosts, compose::clock().now()))
        }
        Hosts::Drain { host } => {
            set_draining(&host, true).await?;
            Ok(format!("{host} takes no new starts within ten seconds\n"))
        }
        Hosts::Undrain { host } => {
            set_draining(&host, false).await?;
            Ok(format!("{host} takes new starts within ten seconds\n"))
        }
        Hosts::Remove { host } => {
            let hosts = store.list().await.context("cannot read the hosts")?;
            let now = compose::clock().now();
            let heir = hosts
                .iter()
                .find(|it| it.status(now) == HostStatus::Available);
            let heir = heir.context("there is no other host that takes its unfinished starts")?;
            let lost = hosts.iter().find(|it| it.id == host);
            let lost = lost.filter(|it| it.status(now) == HostStatus::Lost);
            let removed = match lost {
                Some(lost) => store.remove(lost, &heir.id).await,
                None => Ok(false),
            };
            if !removed.context("cannot remove the host")? {
                bail!("{host} is not lost: `agent-workspace hosts list` says what it is");
            }
            Ok(format!("{host} is removed, with its sandboxes\n"))
        }
    }
}

fn table(hosts: &[Host], now: Timestamp) -> String {
    let width = column_width(hosts.iter().map(|host| host.id.as_str()));
    let mut text = format!(
        "{:width$}  {:9}  {:20}  SANDBOXES  STARTS\n",
        "HOST", "STATE", "LAST SEEN"
    );
    for host in hosts {
        let state = host.status(now).as_str();
        let seen = host.seen_at.map_or_else(|| "never".to_owned(), seconds);
        let _ = writeln!(
            text,
            "{:width$}  {state:9}  {seen:20}  {:9}  {:6}",
            host.id.as_str(),
            host.sandboxes,
            host.open_starts
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::coordination::host::HOST_TIMEOUT;

    use super::*;

    #[test]
    fn the_table_says_what_each_host_does() {
        let now = Timestamp::from_micros(1_795_251_552_000_000);
        let host = |id: &str, ago: Option<u64>, is_draining| Host {
            id: HostId::parse(id).unwrap(),
            registered_at: now,
            seen_at: ago.map(|ago| now.minus(Duration::from_secs(ago))),
            is_draining,
            sandboxes: 3,
            open_starts: 1,
        };
        let lost = HOST_TIMEOUT.as_secs() + 1;
        let all = [
            host("one", Some(1), false),
            host("two-two", Some(1), true),
            host("three", Some(lost), true),
            host("four", None, false),
        ];
        let text = table(&all, now);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let states: Vec<&str> = words[1..].iter().map(|line| line[1]).collect();
        assert_eq!(states, ["available", "draining", "lost", "unknown"]);
        assert_eq!(words[4], ["four", "unknown", "never", "3", "1"]);
    }
}
