//! Health.

use serde::{Deserialize, Serialize};

/// The process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveStatus {
    /// `ok`.
    pub status: String,
}

/// The process and its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Since the start, in seconds.
    pub uptime: f64,
    /// Since the last request, in seconds.
    pub idle_time: f64,
    /// What is used.
    pub resources: ResourceUse,
}

/// What is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Of one processor.
    pub cpu_percent: f64,
    /// Memory.
    pub memory: MemoryUse,
    /// The disk of the data directory.
    pub disk: DiskUse,
    /// Reads and writes.
    pub io: IoUse,
}

/// Memory of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Resident bytes.
    pub rss: u64,
    /// Virtual bytes.
    pub vms: u64,
    /// Resident, of the machine's.
    pub percent: f64,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Bytes.
    pub total: u64,
    /// Bytes.
    pub used: u64,
    /// Bytes.
    pub free: u64,
    /// Of the total.
    pub percent: f64,
}

/// What the process read and wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUse {
    /// Bytes.
    pub read_bytes: u64,
    /// Bytes.
    pub write_bytes: u64,
}
