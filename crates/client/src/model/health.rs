//! Health.

use serde::{Deserialize, Serialize};

/// The response of `/alive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveStatus {
    pub status: String,
}

/// The process and its resource usage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Seconds since the start.
    pub uptime: f64,
    /// Seconds since the last request.
    pub idle_time: f64,
    /// `container`, `confined` or `none`.
    pub sandbox_isolation: String,
    /// `open`, `allow_list` or `none`.
    pub egress_policy: String,
    pub resources: ResourceUse,
}

/// Used resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Processor time, in percent of one processor.
    pub cpu_percent: f64,
    pub memory: MemoryUse,
    /// The disk of the data directory.
    pub disk: DiskUse,
    pub io: IoUse,
}

/// Memory of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Resident memory, in bytes.
    pub rss: u64,
    /// Virtual memory, in bytes.
    pub vms: u64,
    /// Resident memory, in percent of the machine's.
    pub percent: f64,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Size, in bytes.
    pub total: u64,
    pub used: u64,
    pub free: u64,
    /// Used bytes, in percent of the size.
    pub percent: f64,
}

/// Bytes that the process has read and written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUse {
    pub read_bytes: u64,
    pub write_bytes: u64,
}
