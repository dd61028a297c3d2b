//! A language model that follows a script: it speaks enough of the `OpenAI` chat-completions protocol and of Gemini's for the real
//! agent server to run a whole conversation against it, offline and in milliseconds.
//!
//! The script: until the last user message has a tool result, it calls the terminal tool with the command in the message (a line
//! `RUN: <command>` or the first fenced block), or the tool in a line `TOOL: <end of its name> <JSON object>`; then it calls
//! `finish`. A request without tools (title, condenser) gets a short text.
//!
//! The model name, or a path segment before `/v1`, which has precedence, selects faults and delays, joined by `+`:
//!
//! | word | effect |
//! |---|---|
//! | `refuse` | 401, like a provider for a wrong key |
//! | `fail` | 500 |
//! | `hang` | never responds |
//! | `slow-MS` | waits before each response |
//! | `steps-N` | N terminal calls before `finish` |
//! | `talk` | responds with text, calls no tool |
//!
//! Anything else in the name is ignored, so `openai/scripted` is the plain script and `openai/steps-20+slow-300` a
//! long run that can be interrupted.
//!
//! It knows nothing about the service.

mod gemini;
mod mode;
mod script;
mod server;
mod wire;

pub use mode::{Mode, ModelBehavior};
pub use server::{RecordedRequest, ScriptedLlm};
