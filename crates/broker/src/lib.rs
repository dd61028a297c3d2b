//! Stands between sandboxes and the world: calls language models and git hosts, so that keys and tokens stay outside of
//! sandboxes, and proxies connections to allowed hosts.
//!
//! **Knows** the endpoints of providers, how each takes its key, and which paths and headers pass in either direction.
//! **Must never know** who calls: the caller of [`ModelBroker::call`] and [`GitBroker::call`] has checked that, and has the
//! address and the key.
//!
//! * Bodies are streamed both ways; at most a few chunks of each are in memory.
//! * Redirects are not followed, so that a key goes to its endpoint only.
//! * Addresses in private networks are refused unless the operator allows them.

mod call;
mod egress;
mod git;
mod headers;
mod paths;
mod prices;
mod providers;
mod relay;
mod usage;

pub use call::{
    BrokerConfig, ModelAnswer, ModelBroker, ModelCall, ModelCallCounts, ModelCallError,
};
pub use egress::{
    AuthorityError, EgressApprovals, EgressCounts, EgressLimits, EgressProxy, EgressRules,
    SandboxSecrets,
};
pub use git::{
    GitAnswer, GitAnswerBody, GitBroker, GitCall, GitCallError, GitRequest, Push, RefUpdate,
};
pub use outbound_http::{AllowedHost, CaCertificates, PrivateHosts};
pub use paths::{PathRefusal, check_path};
pub use prices::{PriceList, parse_price};
pub use relay::{AnswerBody, AnswerBroken, CallBody, CallCounts, IncompleteBody};
pub use usage::UsageScanner;
