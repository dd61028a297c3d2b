//! A typed client of the service's HTTP interface.
//!
//! Knows: the wire, as `config/openapi.json` says it. Must never know: any other crate of ours.
//!
//! ```no_run
//! use client::{Client, StartRequest};
//! use futures::TryStreamExt as _;
//!
//! # async fn example() -> Result<(), client::Error> {
//! let client = Client::new("https://host.example/workspace", Some("aw_…".into()))?;
//! let task = client.conversations().start(&StartRequest::saying("Write hello.txt.")).await?;
//! let mut states = std::pin::pin!(client.start_tasks().watch(&task.id));
//! while let Some(task) = states.try_next().await? {
//!     assert_ne!(task.status, "ERROR", "{:?}", task.detail);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What holds for every call:
//!
//! * It has deadlines ([`ClientTimeouts`]); nothing is read without a bound; a list is read page by page, as far as it is asked for.
//! * No proxy is used, whatever the environment says, and no redirect is followed: the key goes to the URL that was given and
//!   nowhere else. `https` is checked against the certificate authorities of the system.
//! * Answers may have members that this client does not know; unknown words of an enumeration are kept as `Other`. Both are
//!   what a newer service may do. That this client knows all that the checked-in document says is a test.
//! * Keys and values of secrets are [`Secret`] or hidden in some other way: they are in no error and in no `Debug` text.
//! * Only starting a conversation, making a sandbox and queueing a message are tried again by themselves: they carry an
//!   `Idempotency-Key`, so a request whose answer got lost makes nothing twice. And a read is sent once more if its connection
//!   breaks before the answer begins.

mod call;
mod client;
mod error;
mod follow;
mod json_array;
mod model;
pub mod operations;
mod page;
mod resources;
pub mod sse;
mod transport;

pub use call::IdempotencyKey;
pub use client::{Client, ClientTimeouts, ObservedResponse, Observer};
pub use error::{Error, Problem, Refusal};
pub use follow::{FollowFrom, FollowItem};
pub use model::*;
pub use page::Page;
pub use resources::*;
