//! The routes over the real application, with stores in memory and fakes of sandboxes and agent servers. What is
//! expected stands here as text, members in their order, from recordings of the API that clients know.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod administration;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod catalogue;
#[cfg(test)]
mod console;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod door;
#[cfg(test)]
mod download;
#[cfg(test)]
mod event_stream;
#[cfg(test)]
mod events;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod git;
#[cfg(test)]
mod inside;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod older;
#[cfg(test)]
mod organizations;
#[cfg(test)]
mod pending;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod repeating;
#[cfg(test)]
mod sandboxes;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod surface;
#[cfg(test)]
mod usage;
