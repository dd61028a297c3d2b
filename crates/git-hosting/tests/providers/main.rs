//! Every provider against a scripted server in this process: what is asked, with which credentials, and how pages of any
//! length are cut from the provider's own.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod people;
#[cfg(test)]
mod pull_requests;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tls;
