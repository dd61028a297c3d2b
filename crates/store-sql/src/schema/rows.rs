//! Conversions between rows and values of the domain.

use std::sync::Arc;

use diesel::prelude::*;
use domain::agent::spending::NanoUsd;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::id::{
    ApiKeyId, ConversationId, EgressRequestId, IdentityId, InvitationId, OrganizationId, SecretId,
    SessionId, StartTaskId,
};
use domain::sandbox::ExposedUrl;
use domain::user::settings::Revision;
use url::Url;
use uuid::Uuid;

use crate::schema::codec::replace_nul;
use crate::schema::column_types::{ExposedUrlsCol, Id, JsonCol, TextCol, TimestampCol, UuidCol};

/// A row of a statement that selects ids only.
#[derive(QueryableByName)]
pub(crate) struct IdRow {
    #[diesel(sql_type = Id)]
    pub(crate) id: UuidCol,
}

/// A field of a row that holds a `T`.
pub(crate) trait Column<T> {
    fn from_value(value: &T) -> Self;
    fn into_value(self) -> T;
}

/// Converts between a row and a value whose fields have the same names. The first braces give further fields of the row, the
/// second ones further fields of the value.
macro_rules! same_fields {
    (
        $row:ident, $value:ident, [$($field:ident),* $(,)?]
        $(, |$it:ident| { $($name:ident: $extra:expr),* $(,)? })?
        $(, read |$read:ident| $others:tt)?
    ) => {
        impl From<&$value> for $row {
            fn from(value: &$value) -> Self {
                $(let $it = value;)?
                Self {
                    $($field: $crate::schema::rows::Column::from_value(&value.$field),)*
                    $($($name: $extra,)*)?
                }
            }
        }

        $crate::schema::rows::same_fields!(read $row, $value, [$($field),*] $(, |$read| $others)?);
    };
    (read $row:ident, $value:ident, [$($field:ident),* $(,)?]) => {
        $crate::schema::rows::same_fields!(read $row, $value, [$($field),*], |row| {});
    };
    (
        read $row:ident, $value:ident, [$($field:ident),* $(,)?],
        |$read:ident| { $($name:ident: $other:expr),* $(,)? }
    ) => {
        impl From<$row> for $value {
            fn from($read: $row) -> Self {
                Self {
                    $($field: $crate::schema::rows::Column::into_value($read.$field),)*
                    $($name: $other,)*
                }
            }
        }
    };
}
pub(crate) use same_fields;

/// Columns whose conversions are these two expressions.
macro_rules! columns {
    ($($col:ty => $value:ty: |$v:ident| $encode:expr, |$c:ident| $decode:expr;)*) => {$(
        impl Column<$value> for $col {
            fn from_value($v: &$value) -> Self {
                $encode
            }

            fn into_value(self) -> $value {
                let $c = self;
                $decode
            }
        }
    )*};
}

columns! {
    bool => bool: |value| *value, |col| col;
    i64 => u32: |value| Self::from(*value), |col| u32::try_from(col).unwrap_or(u32::MAX);
    i64 => u64: |value| Self::try_from(*value).unwrap_or(Self::MAX), |col| u64::try_from(col).unwrap_or_default();
    i64 => NanoUsd: |value| Self::try_from(value.nanos()).unwrap_or(Self::MAX), |col| NanoUsd::new(u64::try_from(col).unwrap_or_default());
    i64 => Revision: |value| value.0, |col| Revision(col);
    i32 => u16: |value| Self::from(*value), |col| u16::try_from(col).unwrap_or(u16::MAX);
    String => String: |value| replace_nul(value.as_str()), |col| col;
    String => Sealed: |value| value.as_text().to_owned(), |col| Sealed::from_text(col);
    TimestampCol => Timestamp: |value| Self(*value), |col| col.0;
    UuidCol => Uuid: |value| Self(*value), |col| col.0;
    UuidCol => ApiKeyId: |value| (*value).into(), |col| col.into();
    UuidCol => ConversationId: |value| (*value).into(), |col| col.into();
    UuidCol => EgressRequestId: |value| (*value).into(), |col| col.into();
    UuidCol => InvitationId: |value| (*value).into(), |col| col.into();
    UuidCol => OrganizationId: |value| (*value).into(), |col| col.into();
    UuidCol => IdentityId: |value| (*value).into(), |col| col.into();
    UuidCol => SecretId: |value| (*value).into(), |col| col.into();
    UuidCol => SessionId: |value| (*value).into(), |col| col.into();
    UuidCol => StartTaskId: |value| (*value).into(), |col| col.into();
    TextCol<Url> => Arc<Url>: |value| Self(Url::clone(value)), |col| Arc::new(col.0);
    ExposedUrlsCol => Arc<[ExposedUrl]>: |value| Self(Arc::clone(value)), |col| col.0;
}

impl<T: Clone> Column<T> for TextCol<T> {
    fn from_value(value: &T) -> Self {
        Self(value.clone())
    }

    fn into_value(self) -> T {
        self.0
    }
}

impl<T: Clone> Column<T> for JsonCol<T> {
    fn from_value(value: &T) -> Self {
        Self(value.clone())
    }

    fn into_value(self) -> T {
        self.0
    }
}

impl<T, C: Column<T>> Column<Option<T>> for Option<C> {
    fn from_value(value: &Option<T>) -> Self {
        value.as_ref().map(C::from_value)
    }

    fn into_value(self) -> Option<T> {
        self.map(C::into_value)
    }
}
