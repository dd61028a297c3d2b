//! Decodes a model member by member.

use std::fmt::Display;
use std::marker::PhantomData;

use serde_json::{Map, Value};

use super::{Decode, FieldError, FieldErrors, Patch, Path};

/// A model that is being read. `Model` is the type that it becomes: if a member is sensitive, so must be the model,
/// or it does not compile.
///
/// Members are read in the order in which their errors should be listed. Every reader returns `None` after noting an
/// error, so that the others are still read; build the value at the end with `Some(Self { a: a?, b: b? })`.
///
/// ```compile_fail
/// use http_api::decode::{Decode, FieldErrors, Object, Path};
///
/// struct Forgetful(secrecy::SecretString);
///
/// impl Decode for Forgetful {
///     // `const SENSITIVE: bool = true;` is missing
///     fn decode(value: &serde_json::Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
///         Object::<Self>::open(value, at, errors)?.required("token").map(Self)
///     }
/// }
/// # Forgetful::decode(&serde_json::json!({}), &Path::body(true), &mut FieldErrors::new());
/// ```
pub struct Object<'a, Model> {
    map: &'a Map<String, Value>,
    value: &'a Value,
    at: &'a Path<'a>,
    errors: &'a mut FieldErrors,
    known: Vec<&'static str>,
    model: PhantomData<Model>,
}

impl<'a, Model: Decode> Object<'a, Model> {
    /// Opens an object; adds `model_attributes_type` if the value is not one.
    pub fn open(value: &'a Value, at: &'a Path<'a>, errors: &'a mut FieldErrors) -> Option<Self> {
        let Value::Object(map) = value else {
            errors.push(at, FieldError::model_attributes_type(), value);
            return None;
        };
        Some(Self {
            map,
            value,
            at,
            errors,
            known: Vec::new(),
            model: PhantomData,
        })
    }

    /// The raw member; for a query parameter that is not a list, the last value.
    fn find<T: Decode>(&mut self, key: &'static str) -> Option<&'a Value> {
        const {
            assert!(
                Model::SENSITIVE || !T::SENSITIVE,
                "this model contains a secret: declare `const SENSITIVE: bool = true`"
            );
        }
        self.known.push(key);
        let found = self.map.get(key)?;
        match found {
            Value::Array(texts) if self.at.is_query() && !T::LIST => texts.last(),
            other => Some(other),
        }
    }

    fn read<T: Decode>(&mut self, key: &'static str, value: &Value) -> Option<T> {
        T::decode(value, &self.at.key(key).of_type::<T>(), self.errors)
    }

    /// A required member.
    pub fn required<T: Decode>(&mut self, key: &'static str) -> Option<T> {
        if let Some(value) = self.find::<T>(key) {
            return self.read(key, value);
        }
        let place = self.at.key(key).of_type::<Model>();
        let enclosing = if self.at.is_query() {
            &Value::Null
        } else {
            self.value
        };
        self.errors.push(&place, FieldError::missing(), enclosing);
        None
    }

    /// A member that may be absent or `null`: both are `Some(None)`.
    pub fn optional<T: Decode>(&mut self, key: &'static str) -> Option<Option<T>> {
        self.default(key, || None)
    }

    /// A member that may be absent, but not `null`.
    pub fn not_null<T: Decode>(&mut self, key: &'static str) -> Option<Option<T>> {
        match self.find::<T>(key) {
            Some(value) => self.read(key, value).map(Some),
            None => Some(None),
        }
    }

    /// A member with a default. `T` decodes `null`; it does not mean the default.
    pub fn default<T: Decode>(
        &mut self,
        key: &'static str,
        default: impl FnOnce() -> T,
    ) -> Option<T> {
        match self.find::<T>(key) {
            Some(value) => self.read(key, value),
            None => Some(default()),
        }
    }

    /// A member of a partial update: absent keeps, `null` clears.
    pub fn patch<T: Decode>(&mut self, key: &'static str) -> Option<Patch<T>> {
        match self.find::<T>(key) {
            None => Some(Patch::Keep),
            Some(Value::Null) => Some(Patch::Clear),
            Some(value) => self.read(key, value).map(Patch::Set),
        }
    }

    /// Checks a member that has been read; call it right after reading, so that errors keep their order.
    pub fn rule<T>(
        &mut self,
        key: &'static str,
        member: Option<&T>,
        rule: impl Fn(&T) -> Option<FieldError>,
    ) {
        if let Some(fault) = member.and_then(rule) {
            self.add_error(key, fault);
        }
    }

    /// Turns a member into a type of the domain; its error text becomes a `value_error` (so it must not quote secrets).
    pub fn convert<T, U, E: Display>(
        &mut self,
        key: &'static str,
        member: Option<T>,
        parse: impl FnOnce(T) -> Result<U, E>,
    ) -> Option<U> {
        match parse(member?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add_error(key, FieldError::value_error(error));
                None
            }
        }
    }

    /// Adds an error of a member. Quotes the value only in models without secrets.
    pub fn add_error(&mut self, key: &'static str, fault: FieldError) {
        let place = self.at.key(key).of_type::<Model>();
        let input = match self.map.get(key) {
            Some(Value::Array(texts)) if self.at.is_query() => texts.last(),
            other => other,
        };
        self.errors
            .push(&place, fault, input.unwrap_or(&Value::Null));
    }

    /// Refuses all members that were not read. Without this call they are ignored.
    pub fn forbid_extra(self) {
        for (key, value) in self.map {
            if !self.known.contains(&key.as_str()) {
                let place = self.at.key(key).of_type::<Model>();
                self.errors
                    .push(&place, FieldError::extra_forbidden(), value);
            }
        }
    }
}
