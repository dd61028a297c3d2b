//! The laws, by port.

pub mod api_key_repository;
pub mod conversation_repository;
pub mod conversation_rows;
pub mod crowd;
pub mod deletion;
pub mod event_store;
pub mod host_repository;
pub mod idempotency_repository;
pub mod lease_repository;
pub mod odd_text;
pub mod pruning;
pub mod purge;
pub mod purge_races;
pub mod reports;
pub mod retirement;
pub mod retirement_races;
pub mod sandbox_backend;
pub mod sandbox_life;
pub mod sandbox_repository;
pub mod sealed_records;
pub mod secret_repository;
pub mod settings_repository;
pub mod start_life;
pub mod start_task_repository;
pub mod user_repository;
