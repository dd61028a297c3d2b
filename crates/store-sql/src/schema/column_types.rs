//! Column types that map to native types of the databases, and their values in rows.
//!
//! | column             | in rows                         | `SQLite`                      | Postgres      |
//! |--------------------|---------------------------------|-------------------------------|---------------|
//! | [`Instant`]        | [`TimestampCol`]                | `INTEGER`, microseconds       | `timestamptz` |
//! | [`Id`]             | [`UuidCol`]                     | `TEXT`, 32 hexadecimal digits | `uuid`        |
//! | [`NormalizedJson`] | [`JsonCol`], generated here     | `TEXT`                        | `jsonb`       |
//! | [`VerbatimJson`]   | [`JsonCol`], from outside       | `TEXT`                        | `json`        |
//! | `Text`             | [`TextCol`], ids and enums      | `TEXT`                        | `text`        |
//!
//! `jsonb` rejects `\u0000` and loses the order of keys, so documents of users and agents are `json`. The body of an event
//! is text, so that a query learns its length without reading it. Ids of sandboxes, users, hosts and events are text, because
//! they are not always UUIDs.

use std::fmt::{Debug, Display};
#[cfg(feature = "postgres")]
use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
#[cfg(feature = "postgres")]
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, HasSqlType, Text};
use diesel::sqlite::Sqlite;
use domain::clock::Timestamp;
use domain::error::BoxError;
use domain::id::{
    ApiKeyId, ConversationId, EgressRequestId, IdentityId, InvitationId, OrganizationId, SecretId,
    SessionId, StartTaskId,
};
use domain::sandbox::ExposedUrl;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::database::connection::AnyBackend;
use crate::schema::exposed_url_cache;

pub(crate) use columns::{Id, Instant, NormalizedJson, VerbatimJson};

/// SQL types of the columns in `schema`.
mod columns {
    use diesel::query_builder::QueryId;
    use diesel::sql_types::SqlType;

    macro_rules! sql_types {
        ($($(#[$doc:meta])* $name:ident($sqlite:literal, $oid:literal, $array_oid:literal);)*) => {$(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, Default, SqlType, QueryId)]
            #[diesel(sqlite_type(name = $sqlite))]
            #[cfg_attr(feature = "postgres", diesel(postgres_type(oid = $oid, array_oid = $array_oid)))]
            pub struct $name;
        )*};
    }

    sql_types! {
        /// A timestamp with microseconds.
        Instant("Long", 1184, 1185);
        Id("Text", 2950, 2951);
        /// JSON that this service generates.
        NormalizedJson("Text", 3802, 3807);
        /// JSON kept byte for byte.
        VerbatimJson("Text", 114, 199);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = Instant)]
pub(crate) struct TimestampCol(pub(crate) Timestamp);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromSqlRow, AsExpression)]
#[diesel(sql_type = Id)]
pub(crate) struct UuidCol(pub(crate) Uuid);

/// An id or an enum value as text. Decoding fails on an invalid value: see `QueryResultExt::reading`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = Text)]
pub(crate) struct TextCol<T>(pub(crate) T);

/// A deserialized JSON document. Decoding fails on an invalid document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = NormalizedJson)]
#[diesel(sql_type = VerbatimJson)]
pub(crate) struct JsonCol<T>(pub(crate) T);

/// The exposed URLs of a sandbox, cached by their text.
#[derive(Debug, Clone, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = NormalizedJson)]
pub(crate) struct ExposedUrlsCol(pub(crate) Arc<[ExposedUrl]>);

pub(crate) trait TextValue:
    FromStr<Err: Display> + Display + Debug + Send + Sync + 'static
{
}

impl<T: FromStr<Err: Display> + Display + Debug + Send + Sync + 'static> TextValue for T {}

pub(crate) trait JsonValue:
    Serialize + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<T: Serialize + DeserializeOwned + Debug + Send + Sync + 'static> JsonValue for T {}

/// A value that both databases hold as text.
trait StoredText: Sized {
    fn encode(&self) -> Result<String, BoxError>;
    fn decode(text: &[u8]) -> Result<Self, BoxError>;
}

impl<T: TextValue> StoredText for TextCol<T> {
    fn encode(&self) -> Result<String, BoxError> {
        Ok(self.0.to_string())
    }

    fn decode(text: &[u8]) -> Result<Self, BoxError> {
        let parsed = str::from_utf8(text)?.parse();
        parsed
            .map(Self)
            .map_err(|cause: T::Err| cause.to_string().into())
    }
}

impl<T: JsonValue> StoredText for JsonCol<T> {
    fn encode(&self) -> Result<String, BoxError> {
        Ok(serde_json::to_string(&self.0)?)
    }

    fn decode(text: &[u8]) -> Result<Self, BoxError> {
        // serde's message may quote a wrong enum value. Stored documents hold no plain secrets.
        Ok(Self(serde_json::from_slice(text)?))
    }
}

impl StoredText for ExposedUrlsCol {
    fn encode(&self) -> Result<String, BoxError> {
        Ok(serde_json::to_string(&*self.0)?)
    }

    fn decode(text: &[u8]) -> Result<Self, BoxError> {
        exposed_url_cache::parse(str::from_utf8(text)?).map(Self)
    }
}

/// The only version of Postgres' binary format of `jsonb`, before the text.
#[cfg(feature = "postgres")]
const JSONB_PREFIX: &[u8] = &[1];
#[cfg(feature = "postgres")]
const NO_PREFIX: &[u8] = &[];

/// Conversions of a [`StoredText`] in columns of `$sql`, on all backends. Postgres expects `$prefix` before the text.
macro_rules! stored_texts {
    ($($(<$T:ident: $bound:ident>)? $sql:ident($prefix:ident): $rust:ty),* $(,)?) => {$(
        impl$(<$T: $bound>)? ToSql<$sql, Sqlite> for $rust {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
                out.set_value(self.encode()?);
                Ok(IsNull::No)
            }
        }

        impl$(<$T: $bound>)? FromSql<$sql, Sqlite> for $rust {
            fn from_sql(mut raw: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
                Self::decode(raw.read_text().as_bytes())
            }
        }

        #[cfg(feature = "postgres")]
        impl$(<$T: $bound>)? ToSql<$sql, Pg> for $rust {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                out.write_all($prefix)?;
                out.write_all(self.encode()?.as_bytes())?;
                Ok(IsNull::No)
            }
        }

        #[cfg(feature = "postgres")]
        impl$(<$T: $bound>)? FromSql<$sql, Pg> for $rust {
            fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
                let text = raw.as_bytes().strip_prefix($prefix);
                Self::decode(text.ok_or("unknown version of the binary format of jsonb")?)
            }
        }

        values_on_any!($(<$T: $bound>)? $sql: $rust);
    )*};
}

/// Conversions of the combined backend for values of `$rust` in columns of `$sql`.
macro_rules! values_on_any {
    ($(<$T:ident: $bound:ident>)? $sql:ident: $rust:ty) => {
        impl$(<$T: $bound>)? ToSql<$sql, AnyBackend> for $rust {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, AnyBackend>) -> serialize::Result {
                out.set_value(($sql, self));
                Ok(IsNull::No)
            }
        }

        impl$(<$T: $bound>)? FromSql<$sql, AnyBackend> for $rust {
            fn from_sql(raw: <AnyBackend as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
                raw.from_sql::<Self, $sql>()
            }
        }
    };
}

stored_texts!(
    NormalizedJson(JSONB_PREFIX): ExposedUrlsCol,
    <T: TextValue> Text(NO_PREFIX): TextCol<T>,
    <T: JsonValue> NormalizedJson(JSONB_PREFIX): JsonCol<T>,
    <T: JsonValue> VerbatimJson(NO_PREFIX): JsonCol<T>,
);

impl ToSql<Instant, Sqlite> for TimestampCol {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.micros());
        Ok(IsNull::No)
    }
}

impl FromSql<Instant, Sqlite> for TimestampCol {
    fn from_sql(raw: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        let micros = <i64 as FromSql<BigInt, Sqlite>>::from_sql(raw)?;
        Ok(Self(Timestamp::from_micros(micros)))
    }
}

impl ToSql<Id, Sqlite> for UuidCol {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.simple().to_string());
        Ok(IsNull::No)
    }
}

impl FromSql<Id, Sqlite> for UuidCol {
    fn from_sql(mut raw: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(Uuid::parse_str(raw.read_text())?))
    }
}

/// Microseconds from the Unix epoch to that of Postgres, the year 2000. Every [`Timestamp`] is in the range of Postgres.
#[cfg(feature = "postgres")]
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

#[cfg(feature = "postgres")]
impl ToSql<Instant, Pg> for TimestampCol {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(&(self.0.micros() - POSTGRES_EPOCH_MICROS).to_be_bytes())?;
        Ok(IsNull::No)
    }
}

#[cfg(feature = "postgres")]
impl FromSql<Instant, Pg> for TimestampCol {
    fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
        let micros = i64::from_be_bytes(raw.as_bytes().try_into()?);
        let micros = micros.saturating_add(POSTGRES_EPOCH_MICROS);
        Ok(Self(Timestamp::from_micros(micros)))
    }
}

#[cfg(feature = "postgres")]
impl ToSql<Id, Pg> for UuidCol {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_bytes())?;
        Ok(IsNull::No)
    }
}

#[cfg(feature = "postgres")]
impl FromSql<Id, Pg> for UuidCol {
    fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(Uuid::from_slice(raw.as_bytes())?))
    }
}

macro_rules! uuid_ids {
    ($($id:ident),*) => {$(
        impl From<$id> for UuidCol {
            fn from(id: $id) -> Self {
                Self(id.uuid())
            }
        }

        impl From<UuidCol> for $id {
            fn from(uuid: UuidCol) -> Self {
                Self::new(uuid.0)
            }
        }
    )*};
}

uuid_ids!(
    ApiKeyId,
    ConversationId,
    EgressRequestId,
    InvitationId,
    OrganizationId,
    IdentityId,
    SecretId,
    SessionId,
    StartTaskId
);

/// Makes the SQL types of this crate known to the combined backend.
macro_rules! sql_types_of_any {
    ($($sql:ident),*) => {$(
        impl HasSqlType<$sql> for AnyBackend {
            #[expect(private_interfaces, reason = "the backend is private to this crate")]
            fn metadata(lookup: &mut Self::MetadataLookup) -> Self::TypeMetadata {
                Self::lookup_sql_type::<$sql>(lookup)
            }
        }
    )*};
}

sql_types_of_any!(Instant, Id, NormalizedJson, VerbatimJson);

values_on_any!(Instant: TimestampCol);
values_on_any!(Id: UuidCol);
