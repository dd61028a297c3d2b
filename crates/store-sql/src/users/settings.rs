//! `SettingsRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::error::{Entity, StoreError};
use domain::user::settings::{Revision, SettingsOwner, SettingsRepository, StoredSettings};

use crate::database::connection::{AnyConnection, on_backend};
use crate::database::pool::{JobMode, TenantJobs};
use crate::error::{TransactionError, map_unique_violation, not_found, stale};
use crate::schema::column_types::TimestampCol;
use crate::schema::rows::same_fields;
use crate::schema::settings;
use crate::store::SqlStore;
use crate::users::activity::check_active_owner;
use crate::users::organizations;

#[derive(Queryable, Selectable)]
#[diesel(table_name = settings)]
struct SettingsRow {
    document: String,
    revision: i64,
    updated_at: TimestampCol,
}

same_fields!(read SettingsRow, StoredSettings, [document, revision, updated_at]);

fn jobs_for<'a>(store: &'a SqlStore, owner: &SettingsOwner) -> TenantJobs<'a> {
    match owner {
        SettingsOwner::Member(owner) => store.db.for_owner(owner),
        SettingsOwner::Organization(id) => store.db.for_organization(*id),
    }
}

fn check_active(conn: &mut AnyConnection, owner: &SettingsOwner) -> Result<(), TransactionError> {
    match owner {
        SettingsOwner::Member(owner) => check_active_owner(conn, owner),
        SettingsOwner::Organization(id) => match organizations::load(conn, *id)? {
            Some(_) => Ok(()),
            None => Err(not_found(Entity::Organization)),
        },
    }
}

#[async_trait]
impl SettingsRepository for SqlStore {
    async fn load(&self, owner: &SettingsOwner) -> Result<Option<StoredSettings>, StoreError> {
        let jobs = jobs_for(self, owner);
        let owner = owner.to_string();
        jobs.run(JobMode::Query, move |conn| {
            let row = on_backend!(conn, |c| settings::table
                .find(&owner)
                .select(SettingsRow::as_select())
                .first(c)
                .optional()?);
            Ok(row.map(StoredSettings::from))
        })
        .await
    }

    async fn save(
        &self,
        owner: &SettingsOwner,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError> {
        let jobs = jobs_for(self, owner);
        let (of, owner, document) = (owner.clone(), owner.to_string(), document.clone());
        jobs.run(JobMode::Write, move |conn| {
            check_active(conn, &of)?;
            let next = expected.map_or(1, |revision| revision.0.saturating_add(1));
            let values = (
                settings::document.eq(document.as_text()),
                settings::revision.eq(next),
                settings::updated_at.eq(TimestampCol(at)),
            );
            // Each statement checks the expected revision itself, without reading it first.
            let saved = match expected {
                Some(revision) => diesel::update(
                    settings::table
                        .find(&owner)
                        .filter(settings::revision.eq(revision.0)),
                )
                .set(values)
                .execute(conn)?,
                None => diesel::insert_into(settings::table)
                    .values((settings::owner.eq(&owner), values))
                    .execute(conn)
                    .map_err(map_unique_violation(stale(Entity::Settings)))?,
            };
            if saved == 0 {
                return Err(stale(Entity::Settings));
            }
            Ok(Revision(next))
        })
        .await
    }
}
