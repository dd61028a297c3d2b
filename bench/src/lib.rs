//! Shared parts of the benchmark programs: load with histograms, tables, many rows, and the reference as a program.

pub mod load;
pub mod reference;
pub mod responses;
pub mod rows;
pub mod table;

pub use acceptance::figures::{SortedTimes, event, is_short, median, megabytes, wire};
