//! Where one frame of a WebSocket ends and the next begins (RFC 6455, section 5.2): what must be known to say good-bye in
//! place of the server behind. Nothing else of the frames is looked at, and nothing of them kept.

use actix_web::web::Bytes;

/// Longest head of a frame.
const LONGEST_HEAD: usize = 14;
/// The operation of the frame with which a side ends.
const CLOSE: u8 = 0x8;
/// The last of the operations of frames that carry a message: continuation, text, binary.
const BINARY: u8 = 0x2;

/// Why the end is said by us, as clients are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// 1012: this process stops; come back, to another one or the next.
    Restart,
    /// 1008: whoever opened the tunnel may not have it any more.
    Refused,
    /// 1013: there are too many of them; try again.
    Crowded,
}

impl Reason {
    /// The frame that says it: of a server, so not masked.
    pub(crate) fn frame(self) -> Bytes {
        Bytes::from_static(match self {
            // 1012 is 0x3f4.
            Self::Restart => &[0x80 | CLOSE, 2, 0x03, 0xf4],
            // 1008 is 0x3f0.
            Self::Refused => &[0x80 | CLOSE, 2, 0x03, 0xf0],
            // 1013 is 0x3f5.
            Self::Crowded => &[0x80 | CLOSE, 2, 0x03, 0xf5],
        })
    }
}

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: [u8; LONGEST_HEAD],
    /// Bytes of the head that are there.
    have: usize,
    /// Bytes of the payload that are to come.
    left: u64,
    has_closed: bool,
    /// Whether the frame that is passing carries a message, and whether one has passed.
    is_message: bool,
    has_message: bool,
}

impl Frames {
    /// Goes on by these bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let some = usize::try_from(self.left).unwrap_or(usize::MAX);
                let some = some.min(bytes.len());
                self.left -= some as u64;
                bytes = &bytes[some..];
                self.has_message |= self.is_message && self.left == 0;
                continue;
            }
            self.head[self.have] = *first;
            self.have += 1;
            bytes = rest;
            if let Some(length) = self.length() {
                let operation = self.head[0] & 0xf;
                self.has_closed |= operation == CLOSE;
                self.is_message = operation <= BINARY;
                self.has_message |= self.is_message && length == 0;
                (self.have, self.left) = (0, length);
            }
        }
    }

    /// Whether a frame of ours may come next.
    pub(crate) fn may_end(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.has_closed
    }

    /// Whether a whole frame of a message has passed.
    pub(crate) fn has_message(&self) -> bool {
        self.has_message
    }

    /// Whether this side has begun to end it.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Of the payload, once the head is complete.
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
        // Looks like heads of frames.
        frame.extend(std::iter::repeat_n(0x88, length));
        frame
    }

    #[test]
    fn it_may_end_between_frames_and_only_there_however_they_are_cut() {
        for is_masked in [false, true] {
            for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
                let one = frame(1, length, is_masked);
                let both = [one.clone(), frame(9, 3, is_masked)].concat();
                for step in [1, 2, 3, 7, 8192, both.len()] {
                    let (mut frames, mut passed) = (Frames::default(), 0);
                    assert!(frames.may_end());
                    for piece in both.chunks(step) {
                        frames.pass(piece);
                        passed += piece.len();
                        let is_between = passed == one.len() || passed == both.len();
                        assert_eq!(frames.may_end(), is_between, "{passed} of {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_message_has_passed_when_its_frame_is_whole() {
        let ping = frame(9, 3, true);
        for message in [frame(1, 5, true), frame(2, 300, false), frame(1, 0, true)] {
            let mut frames = Frames::default();
            frames.pass(&ping);
            frames.pass(&message[..message.len() - 1]);
            assert!(!frames.has_message());
            frames.pass(&message[message.len() - 1..]);
            assert!(frames.has_message() && !frames.has_closed());
        }
    }

    #[test]
    fn what_the_server_has_ended_is_not_ended_again() {
        let mut frames = Frames::default();
        frames.pass(&frame(CLOSE, 2, false));
        assert!(!frames.may_end());
    }

    #[test]
    fn the_frames_of_an_end_are_whole() {
        for (reason, code) in [
            (Reason::Restart, 1012_u16),
            (Reason::Refused, 1008),
            (Reason::Crowded, 1013),
        ] {
            let said = reason.frame();
            assert_eq!(said[2..], code.to_be_bytes());
            let mut frames = Frames::default();
            frames.pass(&said[..3]);
            assert!(!frames.may_end() && !frames.has_closed || frames.left == 1);
            frames.pass(&said[3..]);
            assert!(frames.has_closed && frames.left == 0);
        }
    }
}
