//! A request before it is sent.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;
use url::Url;
use uuid::Uuid;

use crate::error::Error;
use crate::model::UtcTime;
use crate::operations::Operation;

/// Identifies a request, so that the service executes it only once however often it is sent. Valid for 24 hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// A random key.
    #[must_use]
    pub fn random() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a client has no port for ids")]
        let id = Uuid::new_v4();
        Self(id.simple().to_string())
    }

    /// A key of the caller's own: 1 to 255 visible ASCII characters.
    ///
    /// # Errors
    /// The text has another form.
    pub fn new(text: &str) -> Result<Self, Error> {
        let is_fine = (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if is_fine {
            Ok(Self(text.to_owned()))
        } else {
            let problem = "an Idempotency-Key has 1 to 255 visible ASCII characters";
            Err(Error::Unusable(problem.to_owned()))
        }
    }

    /// The key as it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A request. Its `Debug` shows no values, because some are secret.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) operation: &'static Operation,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) content_type: &'static str,
    pub(crate) key: Option<IdempotencyKey>,
    /// The last event id seen in a stream.
    pub(crate) last_event: Option<String>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(self.operation).finish()
    }
}

impl Call {
    pub(crate) fn to(operation: &'static Operation) -> Self {
        Self {
            operation,
            path: Vec::new(),
            query: Vec::new(),
            body: None,
            content_type: "application/json",
            key: None,
            last_event: None,
        }
    }

    /// Fills the next parameter of the path.
    pub(crate) fn at(mut self, value: &str) -> Self {
        self.path.push(value.to_owned());
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        debug_assert!(
            self.operation.query.contains(&name),
            "{name} is not a parameter"
        );
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn maybe(self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn time(self, name: &'static str, value: Option<DateTime<Utc>>) -> Self {
        self.maybe(name, value.map(|time| UtcTime(time).to_string()))
    }

    /// Requests one page; `at` is a former page's [`Page::next_page_id`](crate::Page::next_page_id).
    pub(crate) fn page(self, limit: u16, at: Option<&str>) -> Self {
        self.query("limit", limit.to_string()).maybe("page_id", at)
    }

    /// Requests several objects by a parameter that may be repeated.
    pub(crate) fn ids(self, name: &'static str, ids: &[&str]) -> Self {
        ids.iter().fold(self, |call, id| call.query(name, *id))
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Result<Self, Error> {
        let written = serde_json::to_vec(body);
        self.body = Some(
            written.map_err(|_| Error::Unusable("the body cannot be encoded as JSON".into()))?,
        );
        Ok(self)
    }

    /// Sends these fields as a form.
    pub(crate) fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        self.body = Some(form.extend_pairs(fields).finish().into_bytes());
        self.content_type = "application/x-www-form-urlencoded";
        self
    }

    pub(crate) fn once(mut self, key: &IdempotencyKey) -> Self {
        debug_assert!(
            self.operation.repeatable,
            "{} takes no key",
            self.operation.path
        );
        self.key = Some(key.clone());
        self
    }

    /// The URL below the service's own, which may have a path.
    pub(crate) fn url(&self, base: &Url) -> Result<Url, Error> {
        let mut url = base.clone();
        let mut values = self.path.iter();
        {
            let unusable = || Error::Unusable("the service's URL cannot have a path".into());
            let mut segments = url.path_segments_mut().map_err(|()| unusable())?;
            segments.pop_if_empty();
            for segment in self.operation.path.split('/').skip(1) {
                if !segment.starts_with('{') {
                    segments.push(segment);
                    continue;
                }
                let value = values.next().map_or("", String::as_str);
                // Such a segment would be removed from the URL and change the request.
                if matches!(value, "" | "." | "..") {
                    return Err(Error::Unusable(format!("invalid id {value:?}")));
                }
                segments.push(value);
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    #[test]
    fn urls_keep_the_path_of_the_service_and_encode_ids() {
        let pause = |id: &str, base: &str| {
            let call = Call::to(&operations::PAUSE_SANDBOX).at(id);
            call.url(&base.parse().unwrap()).map(|url| url.to_string())
        };
        assert_eq!(
            pause("a b/c?d", "http://h:1/sub/").unwrap(),
            "http://h:1/sub/api/v1/sandboxes/a%20b%2Fc%3Fd/pause"
        );
        assert_eq!(
            pause("x", "http://h/a/b").unwrap(),
            "http://h/a/b/api/v1/sandboxes/x/pause"
        );
        for id in ["", ".", ".."] {
            assert!(pause(id, "http://h").is_err(), "{id}");
        }
        let call = Call::to(&operations::SEARCH_SPECS).query("page_id", "a&b=c");
        assert_eq!(
            call.url(&"http://h".parse().unwrap()).unwrap().as_str(),
            "http://h/api/v1/sandbox-specs/search?page_id=a%26b%3Dc"
        );
    }

    #[test]
    fn idempotency_keys_have_the_format_of_the_service() {
        assert_ne!(IdempotencyKey::random(), IdempotencyKey::random());
        assert!(IdempotencyKey::new("a-1").is_ok());
        for text in ["", "a b", "ä", &"x".repeat(256)] {
            assert!(IdempotencyKey::new(text).is_err());
        }
    }
}
