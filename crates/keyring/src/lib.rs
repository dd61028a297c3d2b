//! Envelope encryption of records, and random ids and keys.
