//! HTTP and HTTPS requests to other machines: one client, one TLS set-up and one policy for private addresses.
//!
//! **Knows** certificate authorities, connections, and which hosts may be called. **Must never know** an API, or why a request
//! is sent: the caller sets headers, deadlines and the size of a response, and follows redirects itself if it wants to.

mod client;
mod host_guard;
mod private_hosts;
mod request_slots;
mod tls;

pub use client::{BodyError, ClientOptions, HttpClient, SendError, next_chunk, read_body};
pub use host_guard::{ForbiddenHost, HostError, HostGuard};
pub use private_hosts::{AllowedHost, PrivateHosts};
pub use request_slots::{RequestSlot, RequestSlots, SlotsExhausted};
pub use tls::CaCertificates;
