//! Users, their settings, secrets and administration.

mod access_matrix;
mod administration;
mod audit;
mod legacy;
mod organizations;
mod secrets;
mod session_access;
mod sign_in;
mod tenancy;
mod usage;
