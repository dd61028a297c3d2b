//! All providers against a scripted server in this process: requests, credentials, and pages of many lengths.

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
