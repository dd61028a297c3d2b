//! Health, metrics, documentation, the web console and the web application.

pub(super) mod console;
pub(super) mod device_login;
pub(super) mod docs;
mod forgotten_password;
mod gzip;
pub(super) mod health;
mod invite;
pub(crate) mod login_redirect;
pub(super) mod metrics;
mod own_page;
pub(super) mod sign_in;
pub(super) mod single_sign_on;
pub(super) mod web_app;
