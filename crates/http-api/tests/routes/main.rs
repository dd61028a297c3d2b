//! The routes with the real application, with stores in memory and fakes of sandboxes and agent servers. Expected bodies are
//! texts with their members in order, from recordings of the reference.

#[cfg(test)]
mod automations;
#[cfg(test)]
mod console;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod response;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod seed;
#[cfg(test)]
mod user;
#[cfg(test)]
mod web_app;
