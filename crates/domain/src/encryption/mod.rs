//! Encryption of what is stored: sealed values and the keys they are sealed with.

pub mod cipher;
pub mod sealed;
pub mod vault;
