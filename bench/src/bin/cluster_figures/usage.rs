//! What work costs the API server, Postgres and the replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use acceptance::processes::{children_of, processor_time};
use anyhow::Context as _;

use super::fleet::Fleet;

/// Counts since the start of everything, or between two moments.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    /// Requests to the API server by verb and object.
    requests: BTreeMap<String, u64>,
    /// Transactions of Postgres, rows that they read, and rows that they changed.
    commits: f64,
    rows_read: f64,
    rows_changed: f64,
    replicas: Duration,
    postgres: Duration,
}

impl Usage {
    pub(crate) fn now(fleet: &Fleet) -> anyhow::Result<Self> {
        let counts = fleet.postgres.query(
            "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1), xact_commit, tup_returned, \
             tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = 'postgres'",
        );
        let counts: Vec<&str> = counts.split('|').collect();
        let &[postmaster, commits, read, changed] = counts.as_slice() else {
            anyhow::bail!("Postgres has other statistics than expected: {counts:?}");
        };
        let postmaster = postmaster.trim().parse().context("a process id")?;
        let mut servers = children_of(postmaster);
        servers.push(postmaster);
        let spent = |pids: Vec<u32>| pids.into_iter().filter_map(processor_time).sum();
        Ok(Self {
            requests: fleet.cluster.fake.requests(),
            commits: commits.parse()?,
            rows_read: read.parse()?,
            rows_changed: changed.parse()?,
            replicas: spent(fleet.replicas.iter().map(|it| it.pid()).collect()),
            postgres: spent(servers),
        })
    }

    /// What was used since an earlier moment.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let requests = self.requests.iter().map(|(what, count)| {
            let before = earlier.requests.get(what).copied().unwrap_or_default();
            (what.clone(), count - before)
        });
        Self {
            requests: requests.filter(|(_, count)| *count > 0).collect(),
            commits: self.commits - earlier.commits,
            rows_read: self.rows_read - earlier.rows_read,
            rows_changed: self.rows_changed - earlier.rows_changed,
            replicas: self.replicas.saturating_sub(earlier.replicas),
            postgres: self.postgres.saturating_sub(earlier.postgres),
        }
    }

    /// Requests to the API server, those of each kind in parentheses, divided by `by`.
    pub(crate) fn requests(&self, by: f64) -> String {
        let share = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / by;
        let all: f64 = self.requests.values().map(|count| share(*count)).sum();
        let mut kinds: Vec<_> = self.requests.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let kinds = kinds.iter().filter(|(_, count)| share(**count) >= 0.05);
        let kinds: Vec<_> = kinds
            .map(|(what, count)| format!("{what} {:.1}", share(**count)))
            .collect();
        format!("{all:.1} requests ({})", kinds.join(", "))
    }

    /// The work of Postgres, divided by `by`.
    pub(crate) fn database(&self, by: f64) -> String {
        format!(
            "{:.1} transactions, {:.0} rows read, {:.1} changed",
            self.commits / by,
            self.rows_read / by,
            self.rows_changed / by
        )
    }

    /// Milliseconds of processor time, divided by `by`.
    pub(crate) fn processor(&self, by: f64) -> String {
        let share = |time: Duration| time.as_secs_f64() * 1000.0 / by;
        format!(
            "{:.1} ms of the replicas, {:.1} ms of Postgres",
            share(self.replicas),
            share(self.postgres)
        )
    }
}
