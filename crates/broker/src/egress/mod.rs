//! The forward proxy of sandboxes, and the rules that say which hosts they reach through it.
//!
//! ```text
//! sandbox ──CONNECT host:443──► rules, approvals ──► look-up and check of all addresses ──► server name in TLS ──► the host
//!         ──GET http://host/──►        "                      "                       (no TLS)
//! ```
//!
//! The caller knows which sandbox a connection comes from: nothing here trusts what the sandbox says about itself.

mod activity;
mod approvals;
mod authority;
mod client_hello;
mod destination;
mod limits;
mod messages;
mod outcomes;
mod placeholders;
mod proxy;
mod rules;
#[cfg(test)]
mod secret_tests;
mod secrets;
#[cfg(test)]
mod tests;
mod tunnel;
mod upgrade;

pub use approvals::EgressApprovals;
pub use authority::AuthorityError;
pub use limits::EgressLimits;
pub use outcomes::EgressCounts;
pub use proxy::EgressProxy;
pub use rules::EgressRules;
pub use secrets::SandboxSecrets;
