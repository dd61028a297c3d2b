//! A language model that follows a script: it speaks enough of the `OpenAI` chat-completions protocol for the real
//! agent server to run a whole conversation against it, offline and in milliseconds.
//!
//! The script: as long as the last user message has no tool result yet, call the terminal tool with the command that
//! the message names (a line `RUN: <command>` or the first fenced block), or the tool that a line `TOOL: <end of its name>
//! <JSON object>` names; then call `finish`. A request that offers no
//! tools (title, condenser) gets a short text.
//!
//! Faults and delays are chosen by the model name, or by a path segment before `/v1` (the segment wins), joined by `+`:
//!
//! | word | effect |
//! |---|---|
//! | `refuse` | 401, as a provider answers a wrong key |
//! | `fail` | 500 |
//! | `hang` | never answers |
//! | `slow-MS` | waits before each answer |
//! | `steps-N` | N terminal calls before `finish` |
//! | `talk` | answers in text, calls no tool |
//!
//! Anything else in the name is ignored, so `openai/scripted` is the plain script and `openai/steps-20+slow-300` a
//! long run that can be interrupted.
//!
//! It knows nothing about the product under test.

mod mode;
mod script;
mod server;
mod wire;

pub use mode::{Kind, Mode};
pub use server::{Record, ScriptedLlm};
