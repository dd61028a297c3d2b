//! `SecretRepository`.

mod sealed_records;
mod vault;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DriverError};
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::error::{Entity, StoreError};
use domain::id::OwnerId;
use domain::page::{Page, PageRequest};
use domain::secret_rule::SecretRules;
use domain::user::secret::{
    CustomSecret, MAX_SECRETS_PER_USER, SECRETS_ENTITY, SecretChange, SecretRepository,
    SecretSummary, SecretValue,
};

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::JobMode;
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::events::octet_length;
use crate::queries::page_token;
use crate::queries::text_functions::{lower, replace};
use crate::schema::codec::replace_nul;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::secrets;
use crate::store::SqlStore;
use crate::users::activity::check_active_owner;

const PAGE_TOKEN_LIST: &str = "secrets";

/// Name, description, hosts, and length of the sealed value.
type SummaryRow = (String, String, TextCol<SecretRules>, i32);

fn summary((name, description, hosts, length): SummaryRow) -> SecretSummary {
    SecretSummary {
        name,
        description,
        hosts: hosts.0,
        sealed_length: usize::try_from(length).unwrap_or(usize::MAX),
    }
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = secrets)]
struct SecretRow {
    owner: TextCol<OwnerId>,
    name: String,
    description: String,
    value_id: UuidCol,
    value: String,
    created_at: TimestampCol,
    updated_at: TimestampCol,
    hosts: TextCol<SecretRules>,
}

same_fields! {
    SecretRow, CustomSecret, [owner, name, description, created_at, updated_at, hosts],
    |secret| {
        value_id: secret.value.id.into(),
        value: secret.value.sealed.as_text().to_owned(),
    },
    read |row| {
        value: SecretValue { id: row.value_id.into(), sealed: Sealed::from_text(row.value) },
    }
}

#[derive(AsChangeset)]
#[diesel(table_name = secrets)]
struct ChangedSecretColumns {
    name: Option<String>,
    description: Option<String>,
    hosts: Option<TextCol<SecretRules>>,
    value_id: Option<UuidCol>,
    value: Option<String>,
    updated_at: TimestampCol,
}

impl ChangedSecretColumns {
    fn new(change: &SecretChange, at: Timestamp) -> Self {
        let value = change.value.as_ref();
        Self {
            name: change.name.clone(),
            description: change.description.as_deref().map(replace_nul),
            hosts: change.hosts.clone().map(TextCol),
            value_id: value.map(|value| value.id.into()),
            value: value.map(|value| value.sealed.as_text().to_owned()),
            updated_at: TimestampCol(at),
        }
    }
}

fn insert(conn: &mut AnyConnection, secret: &CustomSecret) -> Result<(), TransactionError> {
    let owner = secret.owner.as_str();
    check_active_owner(conn, &secret.owner)?;
    let of_owner = secrets::table.filter(secrets::owner.eq(owner));
    let same_name = of_owner.filter(secrets::name.eq(&secret.name));
    if same_name.count().get_result::<i64>(conn)? > 0 {
        return Err(crate::error::conflict(Entity::Secret));
    }
    // The transaction is serializable, so concurrent inserts cannot exceed the limit together.
    let count: i64 = of_owner.count().get_result(conn)?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= MAX_SECRETS_PER_USER {
        return Err(StoreError::Full {
            entity: SECRETS_ENTITY,
            limit: MAX_SECRETS_PER_USER,
        }
        .into());
    }
    diesel::insert_into(secrets::table)
        .values(SecretRow::from(secret))
        .execute(conn)
        .map_err(duplicate_as_lost_race)?;
    Ok(())
}

/// Maps a unique violation to a serialization failure: another transaction stored the name first, and a retry sees it.
fn duplicate_as_lost_race(error: DriverError) -> TransactionError {
    match error {
        DriverError::DatabaseError(DatabaseErrorKind::UniqueViolation, info) => {
            TransactionError::Driver(DriverError::DatabaseError(
                DatabaseErrorKind::SerializationFailure,
                info,
            ))
        }
        other => TransactionError::Driver(other),
    }
}

/// Updates a secret if it exists. Returns the number of changed rows, 0 or 1.
fn update(
    conn: &mut AnyConnection,
    owner: &str,
    name: &str,
    changed: &ChangedSecretColumns,
) -> Result<usize, TransactionError> {
    diesel::update(secrets::table.find((owner, name)))
        .set(changed)
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::Secret)))
}

/// Look-ups by sandboxes and starts do not use the connections of users' requests.
#[async_trait]
impl SecretRepository for SqlStore {
    async fn find(&self, owner: &OwnerId, name: &str) -> Result<Option<CustomSecret>, StoreError> {
        let jobs = self.db.for_intake_of(owner);
        let key = (owner.to_string(), replace_nul(name));
        jobs.run(JobMode::Query, move |conn| {
            let row = secrets::table
                .find((&key.0, &key.1))
                .select(SecretRow::as_select())
                .first(conn)
                .optional()
                .map_decode_error(Entity::Secret)?;
            Ok(row.map(CustomSecret::from))
        })
        .await
    }

    async fn search(
        &self,
        owner: &OwnerId,
        name_contains: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<SecretSummary>, StoreError> {
        let jobs = self.db.for_owner(owner);
        let (owner, page) = (owner.to_string(), page.clone());
        let needle = name_contains.map(|text| replace_nul(text.to_ascii_lowercase()));
        let needle = needle.filter(|text| !text.is_empty());
        // Names are unique and define the order, so the time in the token is constant.
        let after = page_token::decode::<String>(PAGE_TOKEN_LIST, &page)?;
        jobs.run(JobMode::Read, move |conn| {
            let mut query = secrets::table
                .filter(secrets::owner.eq(owner.clone()))
                .into_boxed::<AnyBackend>();
            if let Some(needle) = needle.clone() {
                let folded = lower(secrets::name);
                query = query.filter(replace(folded, needle, "").ne(lower(secrets::name)));
            }
            if let Some((_, name)) = &after {
                query = query.filter(secrets::name.gt(replace_nul(name.as_str())));
            }
            let rows: Vec<SummaryRow> = query
                .order(secrets::name.asc())
                .limit(page_token::rows_to_load(&page))
                .select((
                    secrets::name,
                    secrets::description,
                    secrets::hosts,
                    octet_length(secrets::value),
                ))
                .load(conn)?;
            let page = page_token::build_page(PAGE_TOKEN_LIST, &page, rows, |row| {
                (TimestampCol(Timestamp::from_micros(0)), row.0.clone())
            });
            Ok(page.map(summary))
        })
        .await
    }

    async fn all(&self, owner: &OwnerId) -> Result<Vec<SecretSummary>, StoreError> {
        let jobs = self.db.for_intake_of(owner);
        let owner = owner.to_string();
        jobs.run(JobMode::Query, move |conn| {
            let rows: Vec<SummaryRow> = secrets::table
                .filter(secrets::owner.eq(&owner))
                .order((secrets::created_at.asc(), secrets::name.asc()))
                .select((
                    secrets::name,
                    secrets::description,
                    secrets::hosts,
                    octet_length(secrets::value),
                ))
                .load(conn)?;
            Ok(rows.into_iter().map(summary).collect())
        })
        .await
    }

    async fn insert(&self, secret: &CustomSecret) -> Result<(), StoreError> {
        let jobs = self.db.for_owner(&secret.owner);
        let secret = secret.clone();
        jobs.run(JobMode::Write, move |conn| insert(conn, &secret))
            .await
    }

    async fn put(&self, secret: &CustomSecret, change: &SecretChange) -> Result<bool, StoreError> {
        let jobs = self.db.for_owner(&secret.owner);
        let secret = secret.clone();
        let changed = ChangedSecretColumns::new(change, secret.updated_at);
        jobs.run(JobMode::Write, move |conn| {
            check_active_owner(conn, &secret.owner)?;
            if update(conn, secret.owner.as_str(), &secret.name, &changed)? > 0 {
                return Ok(false);
            }
            insert(conn, &secret)?;
            Ok(true)
        })
        .await
    }

    async fn change(
        &self,
        owner: &OwnerId,
        name: &str,
        change: &SecretChange,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let jobs = self.db.for_owner(owner);
        let (owner, name) = (owner.to_string(), replace_nul(name));
        let changed = ChangedSecretColumns::new(change, at);
        jobs.run(JobMode::Write, move |conn| {
            Ok(update(conn, &owner, &name, &changed)? > 0)
        })
        .await
    }

    async fn delete(&self, owner: &OwnerId, name: &str) -> Result<bool, StoreError> {
        let jobs = self.db.for_owner(owner);
        let key = (owner.to_string(), replace_nul(name));
        jobs.run(JobMode::Write, move |conn| {
            let deleted = diesel::delete(secrets::table.find((&key.0, &key.1))).execute(conn)?;
            Ok(deleted > 0)
        })
        .await
    }
}
