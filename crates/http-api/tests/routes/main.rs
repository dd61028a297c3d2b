//! The routes with the real application, with stores in memory and fakes of sandboxes and agent servers. Expected bodies are
//! texts with their members in order, from recordings of the reference.

#[cfg(test)]
mod access_matrix;
#[cfg(test)]
mod administration;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod callback_tokens;
#[cfg(test)]
mod catalogue;
#[cfg(test)]
mod console;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod documented_routes;
#[cfg(test)]
mod download;
#[cfg(test)]
mod event_stream;
#[cfg(test)]
mod events;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod git;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod legacy;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod organizations;
#[cfg(test)]
mod pending_messages;
#[cfg(test)]
mod public_addresses;
#[cfg(test)]
mod rate_limits;
#[cfg(test)]
mod sandboxes;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod start_tasks;
#[cfg(test)]
mod tenancy;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod validation_errors;
#[cfg(test)]
mod workspace;
