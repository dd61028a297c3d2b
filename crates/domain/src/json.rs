//! What a JSON text costs once it is read.
//!
//! A text may cost many times its length (`[0,0,…]`: 36 times, `[[0],[0],…]`: almost 100 times), so whoever reads one of
//! somebody else's into a document weighs it first.

/// Memory of one value in a list, or of one member of an object: `serde_json` with ordered maps takes 72 and 104 bytes.
const PER_VALUE: usize = 96;
/// Memory of one list or object that is not empty: the first allocation of either has room for a few.
const PER_GROUP: usize = 400;

/// An upper bound of the bytes of memory that the text takes when it is read as a [`serde_json::Value`]. One pass that
/// allocates nothing. It never reads it as JSON: marks inside strings do not count, and a text that is no JSON has a weight, too.
#[must_use]
pub fn weight(text: &[u8]) -> usize {
    let (mut values, mut groups, mut quoted, mut escaped) = (1, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b',' => values += 1,
            b'[' | b'{' => groups += 1,
            _ => {}
        }
    }
    text.len() + values * PER_VALUE + groups * PER_GROUP
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_weight_counts_values_but_not_what_strings_say() {
        assert_eq!(weight(b""), PER_VALUE);
        assert_eq!(weight(br#""[,{\"[,""#), 9 + PER_VALUE);
        assert_eq!(weight(b"[0,0,{}]"), 8 + 3 * PER_VALUE + 2 * PER_GROUP);
        assert!(weight("[[0],".repeat(1000).as_bytes()) > 90 * 5000);
    }

    #[test]
    fn values_are_no_larger_than_they_are_weighed() {
        assert!(size_of::<Value>() <= PER_VALUE);
        // A list's first allocation has room for four.
        assert!(4 * size_of::<Value>() <= PER_GROUP);
    }
}
