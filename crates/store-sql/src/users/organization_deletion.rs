//! Deletes what organizations leave.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::OrganizationId;
use domain::user::identity::PurgeCounts;
use domain::user::organization::OrganizationDeletionRepository;

use crate::database::pool::{JobMode, Workload};
use crate::schema::column_types::UuidCol;
use crate::schema::organizations;
use crate::store::SqlStore;
use crate::users::organizations::owners_of_organization;
use crate::users::purge;

#[async_trait]
impl OrganizationDeletionRepository for SqlStore {
    async fn purge(
        &self,
        id: OrganizationId,
        at: Timestamp,
        limit: usize,
    ) -> Result<PurgeCounts, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let deleted = organizations::table
                .find(UuidCol::from(id))
                .filter(organizations::deleted_at.is_not_null());
            if deleted.count().get_result::<i64>(conn)? == 0 {
                return Ok(PurgeCounts::default());
            }
            let owners = owners_of_organization(conn, id)?;
            let mut purged = purge::erase_owned(conn, &owners, at)?;
            purged += purge::purge_owned(conn, &owners, limit)?;
            Ok(purged)
        })
        .await
    }

    async fn list_partially_deleted(
        &self,
        limit: usize,
    ) -> Result<Vec<OrganizationId>, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let ids: Vec<UuidCol> = organizations::table
                .filter(organizations::deleted_at.is_not_null())
                .order((organizations::deleted_at.asc(), organizations::id.asc()))
                .select(organizations::id)
                .load(conn)?;
            let mut found = Vec::new();
            for id in ids {
                let owners = owners_of_organization(conn, id.into())?;
                if purge::is_owner_purged(conn, &owners)? {
                    diesel::delete(organizations::table.find(id)).execute(conn)?;
                } else if found.len() < limit {
                    found.push(id.into());
                }
            }
            Ok(found)
        })
        .await
    }

    async fn prune_invitations(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("invitations", "id", "expires_at");
        self.prune_rows(rows, before, limit).await
    }
}
