//! Conversations, their starts, messages and events.

mod clones;
mod event_streams;
mod pending;
mod repositories;
mod skills;
mod starts;
mod webhooks;
