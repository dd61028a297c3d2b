//! Users, their settings, secrets and administration.

mod access_matrix;
mod administration;
mod audit;
mod caller_matrix;
mod device_login;
mod legacy;
mod links;
mod mail;
mod organization_matrix;
mod organization_profiles;
mod organizations;
mod secrets;
mod session_access;
mod sign_in;
mod single_sign_on;
mod tenancy;
mod usage;
