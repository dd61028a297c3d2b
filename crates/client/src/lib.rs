//! A typed client of the service's HTTP interface.
//!
//! Knows: the HTTP API, as `config/openapi.json` describes it. Must never know: any other crate of this workspace but
//! `outbound-http`.
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
//! Rules for all calls:
//!
//! * Each call has timeouts ([`ClientTimeouts`]) and bounds what it reads. Lists are read page by page, on demand.
//! * The client uses no proxy and follows no redirects: the key goes only to the given URL. It verifies `https` with the system's
//!   certificate authorities.
//! * Responses may have unknown members, and unknown values of an enumeration become `Other`, because the service may be newer.
//!   A test checks that the client knows everything in the checked-in document.
//! * Keys and values of secrets are [`Secret`] or hidden otherwise. No error and no `Debug` text contains them.
//! * The client repeats starting a conversation, creating a sandbox and queueing a message. These requests carry an
//!   `Idempotency-Key`, so a repetition after a lost response creates nothing twice. It repeats a read once if the connection
//!   breaks before the response begins.

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
