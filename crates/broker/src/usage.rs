//! Reads from an answer, as it passes, which model gave it and how many tokens it took.
//!
//! An answer is a JSON document, or a stream of server-sent events with one document each. The counts are in the member
//! `usage`, the name is in `model`: of the document, of its member `response` (responses), or of `message` (the first event of
//! messages); for Gemini in `usageMetadata` and `modelVersion`. Of several values, as a stream has them, the last one counts.

use domain::agent::spending::TokenCounts;
use memchr::{memchr, memchr2, memchr3};
use serde::Deserialize;

/// Longest value that is read. Counts have some hundred bytes.
const MAX_VALUE_BYTES: usize = 8 * 1024;
/// Longest name of a member that is compared.
const MAX_NAME_BYTES: usize = 16;
/// Deepest nesting whose members have names here; values below it are skipped all the same.
const MAX_DEPTH: u32 = 2;

/// Reads one answer, chunk by chunk. Keeps at most some kilobytes.
#[derive(Debug)]
pub struct UsageScanner {
    /// `None` for a single document.
    line: Option<Line>,
    document: Document,
    model: Option<String>,
    usage: Option<RawUsage>,
}

/// Where in a line of an event stream the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// After so many bytes of `data:`.
    Field(usize),
    Data,
    Other,
}

const DATA: &[u8] = b"data:";

/// Where in a document the next byte is.
#[derive(Debug, Default)]
struct Document {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    /// Whether the next string of this depth names a member.
    is_name: bool,
    /// The name that is read.
    name: Vec<u8>,
    /// The member at depth 1, and of it at depth 2.
    path: [Member; MAX_DEPTH as usize],
    /// The value that is kept, and the depth outside of it.
    kept: Option<(Kept, u32, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Member {
    Usage,
    Model,
    /// `response` or `message`.
    Wrapper,
    #[default]
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Usage,
    Model,
}

/// The counts as the protocols name them: chat completions, responses, messages, Gemini.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    #[serde(alias = "promptTokenCount")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "candidatesTokenCount")]
    completion_tokens: Option<u64>,
    /// Output beside that of the candidates.
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<u64>,
    #[serde(rename = "cachedContentTokenCount")]
    cached_content: Option<u64>,
    prompt_tokens_details: Option<InputDetails>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

impl RawUsage {
    /// The later one of two, where it says something.
    fn updated(self, later: Self) -> Self {
        Self {
            prompt_tokens: later.prompt_tokens.or(self.prompt_tokens),
            completion_tokens: later.completion_tokens.or(self.completion_tokens),
            thoughts: later.thoughts.or(self.thoughts),
            cached_content: later.cached_content.or(self.cached_content),
            prompt_tokens_details: later.prompt_tokens_details.or(self.prompt_tokens_details),
            input_tokens: later.input_tokens.or(self.input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            input_tokens_details: later.input_tokens_details.or(self.input_tokens_details),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            cache_read_input_tokens: later
                .cache_read_input_tokens
                .or(self.cache_read_input_tokens),
        }
    }

    /// `None` if nothing is counted.
    fn counts(&self) -> Option<TokenCounts> {
        let all = self.prompt_tokens.or(self.input_tokens);
        let output = self.completion_tokens.or(self.output_tokens);
        if all.is_none() && output.is_none() {
            return None;
        }
        let (all, output) = (all.unwrap_or_default(), output.unwrap_or_default());
        let output = output.saturating_add(self.thoughts.unwrap_or_default());
        let details = self.prompt_tokens_details.or(self.input_tokens_details);
        let cached = details.and_then(|it| it.cached_tokens);
        let cached = cached.or(self.cached_content);
        let counts = match cached {
            // The cached tokens are among all of them.
            Some(cached) => TokenCounts {
                input: all.saturating_sub(cached),
                cached_input: cached.min(all),
                cache_write: 0,
                output,
            },
            None => TokenCounts {
                input: all,
                cached_input: self.cache_read_input_tokens.unwrap_or_default(),
                cache_write: self.cache_creation_input_tokens.unwrap_or_default(),
                output,
            },
        };
        Some(counts)
    }
}

impl UsageScanner {
    /// For an answer with this content type.
    pub fn new(content_type: &str) -> Self {
        let is_stream = content_type
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream");
        Self {
            line: is_stream.then_some(Line::Field(0)),
            document: Document::default(),
            model: None,
            usage: None,
        }
    }

    /// Reads the next bytes.
    pub fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            rest = &rest[self.count_unread(rest)..];
            let Some((&byte, after)) = rest.split_first() else {
                return;
            };
            rest = after;
            if let Some(line) = self.line {
                let (next, is_data) = line.after(byte);
                self.line = Some(next);
                if byte == b'\n' || byte == b'\r' {
                    self.document = Document::default();
                }
                if !is_data {
                    continue;
                }
            }
            if let Some((kept, value)) = self.document.after(byte) {
                self.keep(kept, &value);
            }
        }
    }

    /// The number of bytes at the beginning that change nothing: of texts that nothing reads, and of other lines.
    fn count_unread(&self, bytes: &[u8]) -> usize {
        let end = match self.line {
            Some(Line::Other) => memchr2(b'\n', b'\r', bytes),
            None | Some(Line::Data) if self.document.skips_text() => {
                let end = memchr3(b'"', b'\\', b'\n', bytes).unwrap_or(bytes.len());
                memchr(b'\r', &bytes[..end]).or(Some(end))
            }
            _ => return 0,
        };
        end.unwrap_or(bytes.len())
    }

    fn keep(&mut self, kept: Kept, value: &[u8]) {
        match kept {
            Kept::Model => {
                if let Ok(Some(name)) = serde_json::from_slice::<Option<String>>(value) {
                    self.model = Some(name);
                }
            }
            Kept::Usage => {
                if let Ok(Some(later)) = serde_json::from_slice::<Option<RawUsage>>(value) {
                    self.usage = Some(self.usage.take().unwrap_or_default().updated(later));
                }
            }
        }
    }

    /// The model that gave the answer, as far as it is known.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The tokens that the answer has named so far.
    pub fn tokens(&self) -> Option<TokenCounts> {
        self.usage.as_ref().and_then(RawUsage::counts)
    }
}

impl Line {
    /// The state after a byte, and whether the byte belongs to the data.
    fn after(self, byte: u8) -> (Self, bool) {
        match (self, byte) {
            (_, b'\n' | b'\r') => (Self::Field(0), false),
            (Self::Field(at), byte) if byte == DATA[at] => {
                let next = at + 1;
                let is_whole = next == DATA.len();
                (
                    if is_whole {
                        Self::Data
                    } else {
                        Self::Field(next)
                    },
                    false,
                )
            }
            (Self::Data, _) => (Self::Data, true),
            (Self::Field(_) | Self::Other, _) => (Self::Other, false),
        }
    }
}

impl Document {
    /// Reads a byte. Returns a value that is complete with it.
    fn after(&mut self, byte: u8) -> Option<(Kept, Vec<u8>)> {
        if self.in_string {
            self.push(byte);
            self.after_in_string(byte);
            return None;
        }
        match byte {
            b'"' => {
                self.push(byte);
                self.in_string = true;
                self.name.clear();
            }
            b'{' | b'[' => {
                self.push(byte);
                self.depth = self.depth.saturating_add(1);
                self.is_name = byte == b'{';
                if let Some(member) = self.member_mut() {
                    *member = Member::Other;
                }
            }
            b':' if self.is_name => {
                self.push(byte);
                self.is_name = false;
                self.begin_value();
            }
            b',' => {
                let done = self.end_value(self.depth);
                self.push(byte);
                // In an array, the next string is a value, and no member has its name.
                self.is_name = true;
                return done;
            }
            b'}' | b']' => {
                let done = self.end_value(self.depth);
                self.depth = self.depth.saturating_sub(1);
                self.is_name = false;
                self.push(byte);
                return done;
            }
            _ => self.push(byte),
        }
        None
    }

    /// Whether the next byte is within a text that nothing reads.
    fn skips_text(&self) -> bool {
        self.in_string && !self.is_escaped && self.kept.is_none() && !self.reads_name()
    }

    /// Whether the text is a name that may matter. At depth 2, only members of a wrapper do.
    fn reads_name(&self) -> bool {
        let is_near = self.depth <= 1 || (self.depth == 2 && self.path[0] == Member::Wrapper);
        self.is_name && is_near && self.name.len() <= MAX_NAME_BYTES
    }

    fn after_in_string(&mut self, byte: u8) {
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            return;
        }
        if self.reads_name() {
            self.name.push(byte);
        }
    }

    /// Which member of the document, or of a wrapper, the name of this depth is.
    fn member_mut(&mut self) -> Option<&mut Member> {
        let at = usize::try_from(self.depth).ok()?.checked_sub(1)?;
        self.path.get_mut(at)
    }

    /// After the colon of a member.
    fn begin_value(&mut self) {
        let member = match self.name.as_slice() {
            b"usage" | b"usageMetadata" => Member::Usage,
            b"model" | b"modelVersion" => Member::Model,
            b"response" | b"message" => Member::Wrapper,
            _ => Member::Other,
        };
        let Some(place) = self.member_mut() else {
            return;
        };
        *place = member;
        let is_outer = self.depth == 1 || self.path[0] == Member::Wrapper;
        let kept = match member {
            Member::Usage => Kept::Usage,
            Member::Model => Kept::Model,
            Member::Wrapper | Member::Other => return,
        };
        if is_outer && self.kept.is_none() {
            self.kept = Some((kept, self.depth, Vec::new()));
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some((_, _, value)) = &mut self.kept {
            value.push(byte);
            if value.len() > MAX_VALUE_BYTES {
                self.kept = None;
            }
        }
    }

    /// At the comma or the bracket that ends a value of this depth.
    fn end_value(&mut self, depth: u32) -> Option<(Kept, Vec<u8>)> {
        let (kept, _, value) = self.kept.take_if(|(_, outside, _)| *outside == depth)?;
        Some((kept, value))
    }
}

#[cfg(test)]
mod tests;
