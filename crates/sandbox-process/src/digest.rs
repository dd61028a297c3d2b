//! Short names for long things.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Twelve hex digits that stand for these parts, in this order.
pub(crate) fn short(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        // Keeps "a","bc" apart from "ab","c".
        hash.update([0]);
    }
    let mut text = String::new();
    for byte in hash.finalize().iter().take(6) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
