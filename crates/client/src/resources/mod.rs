//! The resources of the API.

/// Reads by id: the parameter of the operation may be repeated.
macro_rules! reads_by_id {
    ($resource:ident => $item:ident, $operation:ident $parameter:literal) => {
        impl $resource {
            /// The items with these ids, in the order of the ids; `None` for an unknown id. At most 100 ids.
            pub async fn get_many(&self, ids: &[&str]) -> Result<Vec<Option<$item>>, Error> {
                let call = Call::to(&operations::$operation).ids($parameter, ids);
                self.0.ask(&call).await
            }

            /// The item with this id, if it exists.
            pub async fn get(&self, id: &str) -> Result<Option<$item>, Error> {
                Ok(self.get_many(&[id]).await?.into_iter().next().flatten())
            }
        }
    };
}

mod administration;
mod automations;
mod conversations;
mod device_logins;
mod egress;
mod events;
mod organizations;
mod sandboxes;
mod starts;
mod users;

pub use administration::{Administration, Audit, Keys};
pub use automations::Automations;
pub use conversations::Conversations;
pub use device_logins::{DeviceCode, DeviceLogins};
pub use egress::EgressRequests;
pub use events::Events;
pub use organizations::Organizations;
pub use sandboxes::{Sandboxes, Specs};
pub use starts::StartTasks;
pub use users::{Health, Secrets, Settings, Users};
