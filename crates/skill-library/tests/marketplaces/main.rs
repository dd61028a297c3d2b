//! Marketplaces in repositories that git itself serves (`git http-backend`) on this machine.

#[cfg(test)]
mod stories;
