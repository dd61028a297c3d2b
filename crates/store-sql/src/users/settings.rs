//! `SettingsRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::error::StoreError;
use domain::id::UserId;
use domain::user::settings::{Revision, SettingsRepository, StoredSettings};

use crate::database::connection::on_backend;
use crate::database::pool::JobMode;
use crate::error::{map_unique_violation, stale};
use crate::schema::column_types::TimestampCol;
use crate::schema::rows::same_fields;
use crate::schema::settings;
use crate::store::SqlStore;
use crate::users::check_not_deleted;

#[derive(Queryable, Selectable)]
#[diesel(table_name = settings)]
struct SettingsRow {
    document: String,
    revision: i64,
    updated_at: TimestampCol,
}

same_fields!(read SettingsRow, StoredSettings, [document, revision, updated_at]);

#[async_trait]
impl SettingsRepository for SqlStore {
    async fn load(&self, owner: &UserId) -> Result<Option<StoredSettings>, StoreError> {
        let jobs = self.db.for_user(owner);
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
        owner: &UserId,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError> {
        let jobs = self.db.for_user(owner);
        let (owner, document) = (owner.to_string(), document.clone());
        jobs.run(JobMode::Write, move |conn| {
            check_not_deleted(conn, &owner)?;
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
                    .map_err(map_unique_violation(stale("settings")))?,
            };
            if saved == 0 {
                return Err(stale("settings"));
            }
            Ok(Revision(next))
        })
        .await
    }
}
