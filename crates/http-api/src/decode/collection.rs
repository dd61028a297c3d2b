//! Decodes optional values, lists, maps, and documents that are passed on unread.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Decode, DecodeScalar, FieldError, FieldErrors, Path};

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
}

impl<T: Decode> Decode for Vec<T> {
    const SENSITIVE: bool = T::SENSITIVE;
    const LIST: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let Value::Array(list) = value else {
            errors.push(at, FieldError::list_type(), value);
            return None;
        };
        let mut all = Self::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            all.extend(T::decode(item, &at.index(index).of_type::<T>(), errors));
            if errors.is_full() {
                return None;
            }
        }
        (all.len() == list.len()).then_some(all)
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
        let (mut all, mut is_complete) = (Self::new(), true);
        for (key, item) in map {
            let place = at.key(key);
            let name = K::decode(
                &Value::from(key.as_str()),
                &place.key("[key]").of_type::<K>(),
                errors,
            );
            let decoded = V::decode(item, &place.of_type::<V>(), errors);
            is_complete &= name.is_some() && decoded.is_some();
            all.extend(name.zip(decoded));
            if errors.is_full() {
                return None;
            }
        }
        is_complete.then_some(all)
    }
}

/// A document that is passed on unread. Accepts any value; for objects only, see [`JsonObject`].
impl DecodeScalar for Value {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        Ok(value.clone())
    }
}

/// An object that is passed on unread. Errors may quote it; see [`JsonObject`].
impl DecodeScalar for Map<String, Value> {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        value.as_object().cloned().ok_or_else(FieldError::dict_type)
    }
}

/// An object that is passed on unread (settings, agent documents). It may contain secrets, so errors never quote it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JsonObject(pub Map<String, Value>);

impl DecodeScalar for JsonObject {
    const SENSITIVE: bool = true;

    fn parse(value: &Value) -> Result<Self, FieldError> {
        Map::parse(value).map(Self)
    }
}
