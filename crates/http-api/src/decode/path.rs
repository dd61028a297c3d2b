//! The location of a value in a request: the `loc` of an error.

use serde_json::Value;

/// One step of a [`Path`].
#[derive(Debug, Clone, Copy)]
enum PathStep<'a> {
    Key(&'a str),
    Index(usize),
}

/// The path from the root of a request to a value: a linked list on the stack, so that a request without errors allocates
/// nothing for it.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: PathStep<'a>,
    secret: bool,
    query: bool,
}

/// Longest key that an error quotes; the client chose it, so longer ones are cut.
const MAX_LOC_KEY_BYTES: usize = 256;

impl<'a> Path<'a> {
    const fn root(name: &'a str, secret: bool, query: bool) -> Self {
        Self {
            parent: None,
            step: PathStep::Key(name),
            secret,
            query,
        }
    }

    /// The root of a JSON body; `secret` if the body may contain one.
    pub const fn body(secret: bool) -> Path<'static> {
        Path::root("body", secret, false)
    }

    /// The root of the query parameters. Each member of the value is the list of the texts with that name.
    pub const fn query() -> Path<'static> {
        Path::root("query", false, true)
    }

    /// The root of the path parameters.
    pub const fn path_params() -> Path<'static> {
        Path::root("path", false, false)
    }

    /// The root of the headers.
    pub const fn header() -> Path<'static> {
        Path::root("header", false, false)
    }

    const fn step<'b>(&'b self, step: PathStep<'b>) -> Path<'b> {
        Path {
            parent: Some(self),
            step,
            secret: self.secret,
            query: false,
        }
    }

    /// The member `key` of this value, with the same sensitivity: see [`Path::of_type`].
    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        self.step(PathStep::Key(key))
    }

    /// The element `index` of this value, with the same sensitivity: see [`Path::of_type`].
    pub const fn index(&self, index: usize) -> Path<'_> {
        self.step(PathStep::Index(index))
    }

    /// The same location, known to have the type `T`: its value may be quoted exactly if `T` is not sensitive.
    #[must_use]
    pub const fn of_type<T: super::Decode>(mut self) -> Self {
        self.secret = T::SENSITIVE;
        self
    }

    /// Whether the value here must not be quoted.
    pub const fn is_secret(&self) -> bool {
        self.secret
    }

    /// Whether this is the root of the query parameters.
    pub(crate) const fn is_query(&self) -> bool {
        self.query
    }

    /// The steps from the root, as in an error item.
    pub(crate) fn to_loc(self) -> Vec<Value> {
        let mut loc = self.parent.map_or_else(Vec::new, |parent| parent.to_loc());
        loc.push(match self.step {
            PathStep::Key(key) => Value::from(bounded(key, MAX_LOC_KEY_BYTES)),
            PathStep::Index(index) => Value::from(index),
        });
        loc
    }
}

/// `text`, cut after `most` bytes at a character boundary.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}…", &text[..end])
}
