//! Partial updates.

/// The change of one field in a partial update. An absent field on the wire is [`Patch::Keep`], `null` is
/// [`Patch::Clear`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Patch<T> {
    #[default]
    Keep,
    Set(T),
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

    pub fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// The form of diesel's changesets: `None` keeps, `Some(None)` clears.
    pub fn into_update(self) -> Option<Option<T>> {
        match self {
            Self::Keep => None,
            Self::Set(value) => Some(Some(value)),
            Self::Clear => Some(None),
        }
    }
}
