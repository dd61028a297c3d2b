//! Decodes optional values, lists, maps, and documents that are passed on unread.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Decode, FieldError, FieldErrors, Path};

/// `null` is `None`.
impl<T: Decode> Decode for Option<T> {
    const SENSITIVE: bool = T::SENSITIVE;
    const LIST: bool = T::LIST;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        if value.is_null() {
            Some(None)
        } else {
            T::decode(value, at, errors).map(Some)
        }
    }

    fn decode_owned(value: Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        if value.is_null() {
            Some(None)
        } else {
            T::decode_owned(value, at, errors).map(Some)
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    const SENSITIVE: bool = T::SENSITIVE;
    const LIST: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let Value::Array(list) = value else {
            errors.push(at, FieldError::list_type(), value);
            return None;
        };
        let mut all = Some(Self::with_capacity(list.len()));
        for (index, item) in list.iter().enumerate() {
            let decoded = T::decode(item, &at.index(index).of_type::<T>(), errors);
            all = all.zip(decoded).map(|(mut all, item)| {
                all.push(item);
                all
            });
            if errors.is_full() {
                return None;
            }
        }
        all
    }

    fn decode_owned(value: Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let Value::Array(list) = value else {
            return Self::decode(&value, at, errors);
        };
        let mut all = Some(Self::new());
        for (index, item) in list.into_iter().enumerate() {
            let decoded = T::decode_owned(item, &at.index(index).of_type::<T>(), errors);
            all = all.zip(decoded).map(|(mut all, item)| {
                all.push(item);
                all
            });
            if errors.is_full() {
                return None;
            }
        }
        all
    }
}

/// A map with typed keys (a name, an enumeration). A refused key is reported at `…, <key>, "[key]"`.
impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const SENSITIVE: bool = V::SENSITIVE;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let Value::Object(map) = value else {
            errors.push(at, FieldError::dict_type(), value);
            return None;
        };
        let mut all = Some(Self::new());
        for (key, item) in map {
            let place = at.key(key);
            let name = K::decode(
                &Value::from(key.as_str()),
                &place.key("[key]").of_type::<K>(),
                errors,
            );
            let decoded = V::decode(item, &place.of_type::<V>(), errors);
            all = all.zip(name.zip(decoded)).map(|(mut all, (name, item))| {
                all.insert(name, item);
                all
            });
            if errors.is_full() {
                return None;
            }
        }
        all
    }
}

/// A document that is passed on unread. Accepts any value; for objects only, see [`JsonObject`].
impl Decode for Value {
    fn decode(value: &Value, _at: &Path<'_>, _errors: &mut FieldErrors) -> Option<Self> {
        Some(value.clone())
    }

    fn decode_owned(value: Value, _at: &Path<'_>, _errors: &mut FieldErrors) -> Option<Self> {
        Some(value)
    }
}

/// An object that is passed on unread. Errors may quote it; see [`JsonObject`].
impl Decode for Map<String, Value> {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        if let Value::Object(map) = value {
            return Some(map.clone());
        }
        errors.push(at, FieldError::dict_type(), value);
        None
    }
}

/// An object that is passed on unread (settings, agent documents). It may contain secrets, so errors never quote it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JsonObject(pub Map<String, Value>);

impl Decode for JsonObject {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        if let Value::Object(map) = value {
            return Some(Self(map.clone()));
        }
        errors.push(at, FieldError::dict_type(), value);
        None
    }

    fn decode_owned(value: Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self(map)),
            other => Self::decode(&other, at, errors),
        }
    }
}
