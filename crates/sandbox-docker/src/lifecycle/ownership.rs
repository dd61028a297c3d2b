//! To whom an object of the engine belongs.

/// An object that may belong to another one.
pub(crate) enum Ownership<T> {
    Missing,
    /// Belongs to another installation or program, and is never touched.
    Foreign,
    Ours(T),
}
