//! `ApiKeyRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{ApiKeyId, UserId};
use domain::identity::{ApiKey, ApiKeyRepository, KeyHash};

use crate::codec::Decode;
use crate::connection::Any;
use crate::error::Fault;
use crate::schema::api_keys;
use crate::sql_types::{At, Key};
use crate::store::SqlStore;
use crate::users;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = api_keys, treat_none_as_default_value = false)]
struct ApiKeyRow {
    id: Key,
    user_id: String,
    hash: String,
    prefix: String,
    created_at: At,
    expires_at: Option<At>,
    last_used_at: Option<At>,
}

impl From<&ApiKey> for ApiKeyRow {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.into(),
            user_id: key.user.to_string(),
            hash: key.hash.0.clone(),
            prefix: key.prefix.clone(),
            created_at: At(key.created_at),
            expires_at: key.expires_at.map(At),
            last_used_at: key.last_used_at.map(At),
        }
    }
}

impl TryFrom<ApiKeyRow> for ApiKey {
    type Error = StoreError;

    fn try_from(row: ApiKeyRow) -> Result<Self, StoreError> {
        let decode = Decode("API key");
        Ok(Self {
            id: row.id.into(),
            user: decode.parse("user_id", &row.user_id)?,
            hash: KeyHash(row.hash),
            prefix: row.prefix,
            created_at: row.created_at.0,
            expires_at: row.expires_at.map(|at| at.0),
            last_used_at: row.last_used_at.map(|at| at.0),
        })
    }
}

#[async_trait]
impl ApiKeyRepository for SqlStore {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        let (key, user) = (key.clone(), key.user.to_string());
        self.db
            .write(move |conn| {
                users::ensure(conn, &user, key.created_at)?;
                diesel::insert_into(api_keys::table)
                    .values(ApiKeyRow::from(&key))
                    .execute(conn)
                    .map_err(Fault::taken("API key"))?;
                Ok(())
            })
            .await
    }

    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        let hash = hash.0.clone();
        self.db
            .look(move |conn| {
                let row = api_keys::table
                    .filter(api_keys::hash.eq(&hash))
                    .select(ApiKeyRow::as_select())
                    .first(conn)
                    .optional()?;
                Ok(row.map(ApiKey::try_from).transpose()?)
            })
            .await
    }

    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError> {
        let user = user.map(ToString::to_string);
        self.db
            .look(move |conn| {
                let mut query = api_keys::table.into_boxed::<Any>();
                if let Some(user) = user.clone() {
                    query = query.filter(api_keys::user_id.eq(user));
                }
                let rows = query
                    .order((api_keys::created_at.asc(), api_keys::id.asc()))
                    .select(ApiKeyRow::as_select())
                    .load(conn)?;
                Ok(rows
                    .into_iter()
                    .map(ApiKey::try_from)
                    .collect::<Result<_, _>>()?)
            })
            .await
    }

    async fn revoke(&self, id: ApiKeyId) -> Result<bool, StoreError> {
        self.db
            .write(move |conn| {
                let revoked = diesel::delete(api_keys::table.find(Key::from(id))).execute(conn)?;
                Ok(revoked > 0)
            })
            .await
    }

    async fn touch(&self, id: ApiKeyId, at: Timestamp) -> Result<(), StoreError> {
        self.db
            .background(move |conn| {
                diesel::update(api_keys::table.find(Key::from(id)))
                    .set(api_keys::last_used_at.eq(At(at)))
                    .execute(conn)?;
                Ok(())
            })
            .await
    }
}
