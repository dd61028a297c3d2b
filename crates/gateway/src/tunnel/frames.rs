//! Tracks the frame boundaries of a WebSocket (RFC 6455, section 5.2), so that the gateway can send a close frame in place
//! of the upstream. It reads and keeps nothing else.

use actix_web::web::Bytes;

/// Longest frame header, in bytes.
const MAX_HEADER_BYTES: usize = 14;
/// Opcode of the close frame.
const OPCODE_CLOSE: u8 = 0x8;
/// The highest opcode of a data frame: continuation, text, binary.
const OPCODE_BINARY: u8 = 0x2;

/// Why the gateway closes a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// 1012: this process stops; reconnect.
    ServiceRestart,
    /// 1008: the caller lost access.
    PolicyViolation,
    /// 1013: too many tunnels; try again.
    TryAgainLater,
}

impl CloseReason {
    /// The close frame, unmasked as from a server.
    pub(crate) fn frame(self) -> Bytes {
        Bytes::from_static(match self {
            // 1012 is 0x3f4.
            Self::ServiceRestart => &[0x80 | OPCODE_CLOSE, 2, 0x03, 0xf4],
            // 1008 is 0x3f0.
            Self::PolicyViolation => &[0x80 | OPCODE_CLOSE, 2, 0x03, 0xf0],
            // 1013 is 0x3f5.
            Self::TryAgainLater => &[0x80 | OPCODE_CLOSE, 2, 0x03, 0xf5],
        })
    }
}

/// The frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct FrameTracker {
    head: [u8; MAX_HEADER_BYTES],
    /// Header bytes received so far.
    have: usize,
    /// Payload bytes still to come.
    left: u64,
    has_seen_close: bool,
    /// Whether the current frame is a data frame, and whether one has passed.
    is_message: bool,
    has_seen_message: bool,
}

impl FrameTracker {
    /// Advances by these bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX);
                let count = count.min(bytes.len());
                self.left -= count as u64;
                bytes = &bytes[count..];
                self.has_seen_message |= self.is_message && self.left == 0;
                continue;
            }
            self.head[self.have] = *first;
            self.have += 1;
            bytes = rest;
            if let Some(length) = self.length() {
                let operation = self.head[0] & 0xf;
                self.has_seen_close |= operation == OPCODE_CLOSE;
                self.is_message = operation <= OPCODE_BINARY;
                self.has_seen_message |= self.is_message && length == 0;
                (self.have, self.left) = (0, length);
            }
        }
    }

    /// Whether the gateway may send a frame of its own now.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.has_seen_close
    }

    /// Whether a complete data frame has passed.
    pub(crate) fn has_seen_message(&self) -> bool {
        self.has_seen_message
    }

    /// Whether this side has sent a close frame.
    pub(crate) fn has_seen_close(&self) -> bool {
        self.has_seen_close
    }

    /// The length of the payload, once the header is complete.
    fn length(&self) -> Option<u64> {
        let second = *self.head[..self.have].get(1)?;
        let (extended, mask) = match second & 0x7f {
            126 => (2, second >> 7),
            127 => (8, second >> 7),
            _ => (0, second >> 7),
        };
        if self.have < 2 + extended + 4 * usize::from(mask) {
            return None;
        }
        let big_endian = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Some(match extended {
            0 => u64::from(second & 0x7f),
            _ => big_endian(&self.head[2..2 + extended]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a payload of this length.
    fn frame(operation: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = u8::from(is_masked) << 7;
        let mut frame = vec![0x80 | operation];
        match length {
            0..126 => frame.push(mask | u8::try_from(length).unwrap()),
            126..0x1_0000 => {
                frame.push(mask | 0x7e);
                frame.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(mask | 0x7f);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(if is_masked { &[1, 2, 3, 4][..] } else { &[] });
        // Bytes that look like frame headers.
        frame.extend(std::iter::repeat_n(0x88, length));
        frame
    }

    #[test]
    fn a_boundary_is_only_between_frames() {
        for is_masked in [false, true] {
            for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
                let one = frame(1, length, is_masked);
                let both = [one.clone(), frame(9, 3, is_masked)].concat();
                for step in [1, 2, 3, 7, 8192, both.len()] {
                    let (mut frames, mut passed) = (FrameTracker::default(), 0);
                    assert!(frames.is_at_boundary());
                    for piece in both.chunks(step) {
                        frames.pass(piece);
                        passed += piece.len();
                        let is_between = passed == one.len() || passed == both.len();
                        assert_eq!(frames.is_at_boundary(), is_between, "{passed} of {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_message_is_seen_when_its_frame_is_complete() {
        let ping = frame(9, 3, true);
        for message in [frame(1, 5, true), frame(2, 300, false), frame(1, 0, true)] {
            let mut frames = FrameTracker::default();
            frames.pass(&ping);
            frames.pass(&message[..message.len() - 1]);
            assert!(!frames.has_seen_message());
            frames.pass(&message[message.len() - 1..]);
            assert!(frames.has_seen_message() && !frames.has_seen_close());
        }
    }

    #[test]
    fn no_boundary_follows_a_close_frame() {
        let mut frames = FrameTracker::default();
        frames.pass(&frame(OPCODE_CLOSE, 2, false));
        assert!(!frames.is_at_boundary());
    }

    #[test]
    fn close_frames_carry_their_code_and_are_complete() {
        for (reason, code) in [
            (CloseReason::ServiceRestart, 1012_u16),
            (CloseReason::PolicyViolation, 1008),
            (CloseReason::TryAgainLater, 1013),
        ] {
            let frame = reason.frame();
            assert_eq!(frame[2..], code.to_be_bytes());
            let mut frames = FrameTracker::default();
            frames.pass(&frame[..3]);
            assert!(!frames.is_at_boundary() && !frames.has_seen_close || frames.left == 1);
            frames.pass(&frame[3..]);
            assert!(frames.has_seen_close && frames.left == 0);
        }
    }
}
