//! A change to one field.

/// What to do with a field in a partial update. Absent on the wire is [`Patch::Keep`], `null` is [`Patch::Clear`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Patch<T> {
    /// Leave the stored value.
    #[default]
    Keep,
    /// Store this value.
    Set(T),
    /// Store "no value".
    Clear,
}

impl<T> Patch<T> {
    /// Applies the change to a nullable field.
    pub fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Set(value) => *field = Some(value),
            Self::Clear => *field = None,
        }
    }

    /// Whether the field stays as it is.
    pub fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// As the value to store: `None` keeps, `Some(None)` clears (the shape diesel's changesets want).
    pub fn into_update(self) -> Option<Option<T>> {
        match self {
            Self::Keep => None,
            Self::Set(value) => Some(Some(value)),
            Self::Clear => Some(None),
        }
    }
}
