//! The resources of the API.

mod administration;
mod conversations;
mod events;
mod sandboxes;
mod starts;
mod users;

pub use administration::{Administration, Audit, Keys};
pub use conversations::Conversations;
pub use events::Events;
pub use sandboxes::{Sandboxes, Specs};
pub use starts::StartTasks;
pub use users::{Health, Secrets, Settings, Users};
