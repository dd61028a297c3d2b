//! What holds for every route.

mod documented_routes;
mod idempotency;
mod listeners;
mod public_addresses;
mod rate_limits;
mod validation_errors;
