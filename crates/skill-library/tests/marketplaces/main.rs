//! Marketplaces in repositories that `git http-backend` serves on this machine.

#[cfg(test)]
mod repositories;
