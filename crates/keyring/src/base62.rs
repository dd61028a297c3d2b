//! Numbers in base 62 with a fixed width, so that texts of equally many bytes have the same length.

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Encodes the big-endian number `bytes` in exactly `width` digits. Callers choose a width that holds every value (22 for 16
/// bytes, 43 for 32, 6 for 4), because the highest digits of a larger number would be lost.
pub(crate) fn encode(bytes: &[u8], width: usize) -> String {
    let mut number = zeroize::Zeroizing::new(bytes.to_vec());
    let mut digits = vec![b'0'; width];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in number.iter_mut() {
            let value = (remainder << 8) | u32::from(*byte);
            // The value is below 62 * 256, so the quotient fits a byte.
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            remainder = value % 62;
        }
        *digit = DIGITS[remainder as usize];
    }
    digits.into_iter().map(char::from).collect()
}

/// Whether the text consists of base62 digits.
pub(crate) fn is_base62(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_values_fit_their_widths() {
        assert_eq!(encode(&[0; 4], 6), "000000");
        assert_eq!(encode(&[0, 0, 0, 61], 6), "00000z");
        assert_eq!(encode(&[0, 0, 0, 62], 6), "000010");
        // 2^32 - 1 and 2^128 - 1, computed with another program.
        assert_eq!(encode(&[0xff; 4], 6), "4gfFC3");
        assert_eq!(encode(&[0xff; 16], 22), "7n42DGM5Tflk9n8mt7Fhc7");
        assert_ne!(encode(&[0xff; 32], 43).as_bytes()[0], b'z');
    }

    proptest! {
        #[test]
        fn the_order_of_numbers_is_the_order_of_their_texts(a: [u8; 16], b: [u8; 16]) {
            prop_assert_eq!(a.cmp(&b), encode(&a, 22).cmp(&encode(&b, 22)));
        }
    }
}
