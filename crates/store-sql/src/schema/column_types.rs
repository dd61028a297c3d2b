//! Column types that map to native types of the databases, and their values in rows.
//!
//! | column             | in rows                         | `SQLite`                      | Postgres      |
//! |--------------------|---------------------------------|-------------------------------|---------------|
//! | [`Instant`]        | [`TimestampCol`]                | `INTEGER`, microseconds       | `timestamptz` |
//! | [`Id`]             | [`UuidCol`]                     | `TEXT`, 32 hexadecimal digits | `uuid`        |
//! | [`NormalizedJson`] | [`RawJsonCol`], generated here  | `TEXT`                        | `jsonb`       |
//! | [`VerbatimJson`]   | [`RawJsonCol`], from outside    | `TEXT`                        | `json`        |
//!
//! Rows of listings hold decoded values instead: [`TextCol`] for ids and enums in `Text`, [`JsonCol`] for documents. Both
//! decode from the driver's buffer without an intermediate `String`.
//!
//! `jsonb` rejects `\u0000` and loses the order of keys, so documents of users and agents are `json`. The body of an event
//! is text, so that a query learns its length without reading it. Ids of sandboxes, users, hosts and events are text, because
//! they are not always UUIDs.

use std::cell::Cell;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::sync::Arc;
use std::thread::LocalKey;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, HasSqlType, Text};
use diesel::sqlite::Sqlite;
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, ConversationId, HostId, SecretId, SpecId, StartTaskId};
use domain::sandbox::ExposedUrl;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::database::connection::AnyBackend;
use crate::schema::parse_cache;

pub(crate) use columns::{Id, Instant, NormalizedJson, VerbatimJson};

/// SQL types of the columns in `schema`.
mod columns {
    use diesel::query_builder::QueryId;
    use diesel::sql_types::SqlType;

    /// A timestamp with microseconds.
    #[derive(Debug, Clone, Copy, Default, SqlType, QueryId)]
    #[diesel(sqlite_type(name = "Long"))]
    #[cfg_attr(
        feature = "postgres",
        diesel(postgres_type(oid = 1184, array_oid = 1185))
    )]
    pub struct Instant;

    /// A UUID.
    #[derive(Debug, Clone, Copy, Default, SqlType, QueryId)]
    #[diesel(sqlite_type(name = "Text"))]
    #[cfg_attr(
        feature = "postgres",
        diesel(postgres_type(oid = 2950, array_oid = 2951))
    )]
    pub struct Id;

    /// JSON that this service generates.
    #[derive(Debug, Clone, Copy, Default, SqlType, QueryId)]
    #[diesel(sqlite_type(name = "Text"))]
    #[cfg_attr(
        feature = "postgres",
        diesel(postgres_type(oid = 3802, array_oid = 3807))
    )]
    pub struct NormalizedJson;

    /// JSON kept byte for byte.
    #[derive(Debug, Clone, Copy, Default, SqlType, QueryId)]
    #[diesel(sqlite_type(name = "Text"))]
    #[cfg_attr(
        feature = "postgres",
        diesel(postgres_type(oid = 114, array_oid = 199))
    )]
    pub struct VerbatimJson;
}

/// A timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = Instant)]
pub(crate) struct TimestampCol(pub(crate) Timestamp);

/// A UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromSqlRow, AsExpression)]
#[diesel(sql_type = Id)]
pub(crate) struct UuidCol(pub(crate) Uuid);

/// JSON as text.
#[derive(Debug, Clone, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = NormalizedJson)]
#[diesel(sql_type = VerbatimJson)]
pub(crate) struct RawJsonCol(pub(crate) String);

/// An id or an enum value as text. Decoding fails on an invalid value: see `TransactionError::corrupt_if_undecodable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = Text)]
pub(crate) struct TextCol<T>(pub(crate) T);

/// A [`TextCol`] whose value repeats from row to row. Decoding reuses the value of the previous row that this thread read,
/// which saves an allocation.
#[derive(Debug, Clone, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = Text)]
pub(crate) struct InternedCol<T>(pub(crate) T);

/// A deserialized JSON document. Decoding fails on an invalid document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = NormalizedJson)]
#[diesel(sql_type = VerbatimJson)]
pub(crate) struct JsonCol<T>(pub(crate) T);

/// The exposed URLs of a sandbox, cached by their text.
#[derive(Debug, Clone, PartialEq, Eq, FromSqlRow, AsExpression)]
#[diesel(sql_type = NormalizedJson)]
pub(crate) struct ExposedUrlsCol(pub(crate) Arc<[ExposedUrl]>);

/// A value of a [`TextCol`].
pub(crate) trait TextValue:
    FromStr<Err: Display> + Display + Debug + Send + Sync + 'static
{
}

impl<T: FromStr<Err: Display> + Display + Debug + Send + Sync + 'static> TextValue for T {}

/// A value of an [`InternedCol`].
pub(crate) trait InternedValue: TextValue + AsRef<str> + Clone {
    /// The value of the previous row.
    fn last_value() -> &'static LocalKey<Cell<Option<Self>>>;
}

macro_rules! interned_values {
    ($($id:ident),*) => {$(
        impl InternedValue for $id {
            fn last_value() -> &'static LocalKey<Cell<Option<Self>>> {
                thread_local!(static LAST_VALUE: Cell<Option<$id>> = const { Cell::new(None) });
                &LAST_VALUE
            }
        }
    )*};
}

interned_values!(HostId, SpecId);

/// A value of a [`JsonCol`].
pub(crate) trait JsonValue:
    Serialize + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<T: Serialize + DeserializeOwned + Debug + Send + Sync + 'static> JsonValue for T {}

fn parse_text<T: TextValue>(text: &str) -> deserialize::Result<TextCol<T>> {
    text.parse()
        .map(TextCol)
        .map_err(|cause: T::Err| cause.to_string().into())
}

fn parse_interned<T: InternedValue>(text: &str) -> deserialize::Result<InternedCol<T>> {
    let last_value = T::last_value();
    let same = last_value.take().filter(|last| last.as_ref() == text);
    let value = same.map_or_else(|| parse_text(text).map(|parsed| parsed.0), Ok)?;
    last_value.set(Some(value.clone()));
    Ok(InternedCol(value))
}

fn parse_json<T: JsonValue>(text: &[u8]) -> deserialize::Result<JsonCol<T>> {
    // serde's message may quote a wrong enum value. Stored documents hold no plain secrets.
    Ok(JsonCol(serde_json::from_slice(text)?))
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

uuid_ids!(ApiKeyId, ConversationId, SecretId, StartTaskId);

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

/// Conversions of the combined backend for values of `$rust` in columns of `$sql`.
macro_rules! values_on_any {
    ($($(<$T:ident: $bound:ident>)? $sql:ident: $rust:ty),* $(,)?) => {$(
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
    )*};
}

values_on_any!(
    Instant: TimestampCol,
    Id: UuidCol,
    NormalizedJson: RawJsonCol,
    VerbatimJson: RawJsonCol,
    NormalizedJson: ExposedUrlsCol,
    <T: TextValue> Text: TextCol<T>,
    <T: InternedValue> Text: InternedCol<T>,
    <T: JsonValue> NormalizedJson: JsonCol<T>,
    <T: JsonValue> VerbatimJson: JsonCol<T>,
);

type SqliteValue<'a> = <Sqlite as Backend>::RawValue<'a>;

impl ToSql<Instant, Sqlite> for TimestampCol {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.micros());
        Ok(IsNull::No)
    }
}

impl FromSql<Instant, Sqlite> for TimestampCol {
    fn from_sql(raw: SqliteValue<'_>) -> deserialize::Result<Self> {
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
    fn from_sql(mut raw: SqliteValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(Uuid::parse_str(raw.read_text())?))
    }
}

impl<T: TextValue> ToSql<Text, Sqlite> for TextCol<T> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.to_string());
        Ok(IsNull::No)
    }
}

impl<T: TextValue> FromSql<Text, Sqlite> for TextCol<T> {
    fn from_sql(mut raw: SqliteValue<'_>) -> deserialize::Result<Self> {
        parse_text(raw.read_text())
    }
}

impl<T: InternedValue> ToSql<Text, Sqlite> for InternedCol<T> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.as_ref());
        Ok(IsNull::No)
    }
}

impl<T: InternedValue> FromSql<Text, Sqlite> for InternedCol<T> {
    fn from_sql(mut raw: SqliteValue<'_>) -> deserialize::Result<Self> {
        parse_interned(raw.read_text())
    }
}

impl ToSql<NormalizedJson, Sqlite> for ExposedUrlsCol {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(serde_json::to_string(&*self.0)?);
        Ok(IsNull::No)
    }
}

impl FromSql<NormalizedJson, Sqlite> for ExposedUrlsCol {
    fn from_sql(mut raw: SqliteValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(parse_cache::parse_exposed_urls(
            raw.read_text().as_bytes(),
        )?))
    }
}

macro_rules! json_on_sqlite {
    ($($sql:ident),*) => {$(
        impl ToSql<$sql, Sqlite> for RawJsonCol {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
                out.set_value(self.0.as_str());
                Ok(IsNull::No)
            }
        }

        impl FromSql<$sql, Sqlite> for RawJsonCol {
            fn from_sql(raw: SqliteValue<'_>) -> deserialize::Result<Self> {
                <String as FromSql<Text, Sqlite>>::from_sql(raw).map(Self)
            }
        }

        impl<T: JsonValue> ToSql<$sql, Sqlite> for JsonCol<T> {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
                out.set_value(serde_json::to_string(&self.0)?);
                Ok(IsNull::No)
            }
        }

        impl<T: JsonValue> FromSql<$sql, Sqlite> for JsonCol<T> {
            fn from_sql(mut raw: SqliteValue<'_>) -> deserialize::Result<Self> {
                parse_json(raw.read_text().as_bytes())
            }
        }
    )*};
}

json_on_sqlite!(NormalizedJson, VerbatimJson);

#[cfg(feature = "postgres")]
mod on_postgres {
    use std::io::Write;

    use diesel::pg::{Pg, PgValue};

    use super::{
        ExposedUrlsCol, FromSql, Id, Instant, InternedCol, InternedValue, IsNull, JsonCol,
        JsonValue, NormalizedJson, Output, RawJsonCol, Text, TextCol, TextValue, Timestamp,
        TimestampCol, ToSql, Uuid, UuidCol, VerbatimJson, deserialize, parse_cache, parse_interned,
        parse_json, parse_text, serialize,
    };

    /// Microseconds from the Unix epoch to that of Postgres, the year 2000. Every [`Timestamp`] is in the range of Postgres.
    const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

    impl ToSql<Instant, Pg> for TimestampCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&(self.0.micros() - POSTGRES_EPOCH_MICROS).to_be_bytes())?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<Instant, Pg> for TimestampCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            let micros = i64::from_be_bytes(raw.as_bytes().try_into()?);
            Ok(Self(Timestamp::from_micros(
                micros.saturating_add(POSTGRES_EPOCH_MICROS),
            )))
        }
    }

    impl ToSql<Id, Pg> for UuidCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(self.0.as_bytes())?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<Id, Pg> for UuidCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(Self(Uuid::from_slice(raw.as_bytes())?))
        }
    }

    /// The only version of the binary format of `jsonb`; the text follows it.
    const JSONB_VERSION: u8 = 1;

    impl ToSql<NormalizedJson, Pg> for RawJsonCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&[JSONB_VERSION])?;
            out.write_all(self.0.as_bytes())?;
            Ok(IsNull::No)
        }
    }

    fn jsonb_text<'a>(raw: &'a PgValue<'_>) -> deserialize::Result<&'a [u8]> {
        match raw.as_bytes().split_first() {
            Some((&JSONB_VERSION, text)) => Ok(text),
            _ => Err("unknown version of the binary format of jsonb".into()),
        }
    }

    impl FromSql<NormalizedJson, Pg> for RawJsonCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(Self(str::from_utf8(jsonb_text(&raw)?)?.to_owned()))
        }
    }

    impl<T: JsonValue> ToSql<NormalizedJson, Pg> for JsonCol<T> {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&[JSONB_VERSION])?;
            serde_json::to_writer(out, &self.0)?;
            Ok(IsNull::No)
        }
    }

    impl<T: JsonValue> FromSql<NormalizedJson, Pg> for JsonCol<T> {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            parse_json(jsonb_text(&raw)?)
        }
    }

    impl ToSql<NormalizedJson, Pg> for ExposedUrlsCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&[JSONB_VERSION])?;
            serde_json::to_writer(out, &*self.0)?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<NormalizedJson, Pg> for ExposedUrlsCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(Self(parse_cache::parse_exposed_urls(jsonb_text(&raw)?)?))
        }
    }

    impl<T: JsonValue> ToSql<VerbatimJson, Pg> for JsonCol<T> {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            serde_json::to_writer(out, &self.0)?;
            Ok(IsNull::No)
        }
    }

    impl<T: JsonValue> FromSql<VerbatimJson, Pg> for JsonCol<T> {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            parse_json(raw.as_bytes())
        }
    }

    impl<T: TextValue> ToSql<Text, Pg> for TextCol<T> {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            write!(out, "{}", self.0)?;
            Ok(IsNull::No)
        }
    }

    impl<T: TextValue> FromSql<Text, Pg> for TextCol<T> {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            parse_text(str::from_utf8(raw.as_bytes())?)
        }
    }

    impl<T: InternedValue> ToSql<Text, Pg> for InternedCol<T> {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(self.0.as_ref().as_bytes())?;
            Ok(IsNull::No)
        }
    }

    impl<T: InternedValue> FromSql<Text, Pg> for InternedCol<T> {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            parse_interned(str::from_utf8(raw.as_bytes())?)
        }
    }

    impl ToSql<VerbatimJson, Pg> for RawJsonCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(self.0.as_bytes())?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<VerbatimJson, Pg> for RawJsonCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(Self(str::from_utf8(raw.as_bytes())?.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interned_value_is_reused_only_for_the_same_text() {
        for text in ["a", "b", "b", "a"] {
            assert_eq!(parse_interned::<HostId>(text).unwrap().0.as_str(), text);
            assert!(parse_interned::<HostId>("").is_err());
        }
    }
}
