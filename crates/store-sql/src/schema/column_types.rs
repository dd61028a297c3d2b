//! Column types that map to native types of the databases, and their values in rows.
//!
//! | column             | in rows                         | `SQLite`                      | Postgres      |
//! |--------------------|---------------------------------|-------------------------------|---------------|
//! | [`Instant`]        | [`TimestampCol`]                | `INTEGER`, microseconds       | `timestamptz` |
//! | [`Id`]             | [`UuidCol`]                     | `TEXT`, 32 hexadecimal digits | `uuid`        |
//! | [`NormalizedJson`] | [`RawJsonCol`], our own JSON    | `TEXT`                        | `jsonb`       |
//! | [`VerbatimJson`]   | [`RawJsonCol`], foreign JSON    | `TEXT`                        | `json`        |
//!
//! Rows of listings hold decoded values instead: [`TextCol`] for ids and enums in `Text`, [`JsonCol`] for documents. Both
//! decode from the driver's buffer without an intermediate `String`.
//!
//! `jsonb` rejects `\u0000` and loses the order of keys, so documents of users and agents are `json`. The body of an event
//! is text, because a query reads its length without reading the body. Ids of sandboxes, users, hosts and events are text,
//! because their format is not fixed or not ours.

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

use crate::database::connection::Any;
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

/// An id or an enum value as text. Decoding fails on an invalid value: see `TransactionError::damaged`.
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
                thread_local!(static BEFORE: Cell<Option<$id>> = const { Cell::new(None) });
                &BEFORE
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
    let known = last_value.take().filter(|known| known.as_ref() == text);
    let word = known.map_or_else(|| parse_text(text).map(|word| word.0), Ok)?;
    last_value.set(Some(word.clone()));
    Ok(InternedCol(word))
}

fn parse_json<T: JsonValue>(text: &[u8]) -> deserialize::Result<JsonCol<T>> {
    // serde's message may quote a wrong enum value. Stored documents hold no plain secrets.
    Ok(JsonCol(serde_json::from_slice(text)?))
}

macro_rules! keys_of {
    ($($id:ident),*) => {$(
        impl From<$id> for UuidCol {
            fn from(id: $id) -> Self {
                Self(id.uuid())
            }
        }

        impl From<UuidCol> for $id {
            fn from(key: UuidCol) -> Self {
                Self::new(key.0)
            }
        }
    )*};
}

keys_of!(ApiKeyId, ConversationId, SecretId, StartTaskId);

/// Column types that the combined backend does not know by itself.
macro_rules! known_to_any {
    ($($sql:ident),*) => {$(
        impl HasSqlType<$sql> for Any {
            #[expect(private_interfaces, reason = "the backend of a connection that is ours alone")]
            fn metadata(lookup: &mut Self::MetadataLookup) -> Self::TypeMetadata {
                Self::lookup_sql_type::<$sql>(lookup)
            }
        }
    )*};
}

known_to_any!(Instant, Id, NormalizedJson, VerbatimJson);

/// Conversions of the combined backend for values of `$rust` in columns of `$sql`.
macro_rules! on_any {
    ($($(<$T:ident: $bound:ident>)? $sql:ident: $rust:ty),* $(,)?) => {$(
        impl$(<$T: $bound>)? ToSql<$sql, Any> for $rust {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Any>) -> serialize::Result {
                out.set_value(($sql, self));
                Ok(IsNull::No)
            }
        }

        impl$(<$T: $bound>)? FromSql<$sql, Any> for $rust {
            fn from_sql(raw: <Any as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
                raw.from_sql::<Self, $sql>()
            }
        }
    )*};
}

on_any!(
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
        Ok(Self(parse_cache::exposed(raw.read_text().as_bytes())?))
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

    /// Postgres counts from the year 2000. Our timestamps end long before its.
    const EPOCH: i64 = 946_684_800_000_000;

    impl ToSql<Instant, Pg> for TimestampCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&(self.0.micros() - EPOCH).to_be_bytes())?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<Instant, Pg> for TimestampCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            let micros = i64::from_be_bytes(raw.as_bytes().try_into()?);
            Ok(Self(Timestamp::from_micros(micros.saturating_add(EPOCH))))
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
    const VERSION: u8 = 1;

    impl ToSql<NormalizedJson, Pg> for RawJsonCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&[VERSION])?;
            out.write_all(self.0.as_bytes())?;
            Ok(IsNull::No)
        }
    }

    fn text_of<'a>(raw: &'a PgValue<'_>) -> deserialize::Result<&'a [u8]> {
        match raw.as_bytes().split_first() {
            Some((&VERSION, text)) => Ok(text),
            _ => Err("an unknown binary form of jsonb".into()),
        }
    }

    impl FromSql<NormalizedJson, Pg> for RawJsonCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(Self(str::from_utf8(text_of(&raw)?)?.to_owned()))
        }
    }

    impl<T: JsonValue> ToSql<NormalizedJson, Pg> for JsonCol<T> {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&[VERSION])?;
            serde_json::to_writer(out, &self.0)?;
            Ok(IsNull::No)
        }
    }

    impl<T: JsonValue> FromSql<NormalizedJson, Pg> for JsonCol<T> {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            parse_json(text_of(&raw)?)
        }
    }

    impl ToSql<NormalizedJson, Pg> for ExposedUrlsCol {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(&[VERSION])?;
            serde_json::to_writer(out, &*self.0)?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<NormalizedJson, Pg> for ExposedUrlsCol {
        fn from_sql(raw: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(Self(parse_cache::exposed(text_of(&raw)?)?))
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
    fn a_common_word_is_that_of_the_row_before_only_if_it_is_the_same() {
        for text in ["a", "b", "b", "a"] {
            assert_eq!(parse_interned::<HostId>(text).unwrap().0.as_str(), text);
            assert!(parse_interned::<HostId>("").is_err());
        }
    }
}
