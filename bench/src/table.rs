//! A table for `bench/results`: what was found, what it is compared with, and how it was meant to be.

use std::fmt::Write as _;
use std::io::Write as _;

use acceptance::print_line;

/// Lines, in order.
#[derive(Debug, Default)]
pub struct Table(String);

impl Table {
    /// One line: what, this, compared with, ratio, target. It is also told at once.
    pub fn row(&mut self, cells: [&str; 5]) {
        let line = format!("| {} |", cells.join(" | "));
        print_line(&line);
        let _ = writeln!(self.0, "{line}");
    }

    /// All of it, on standard output.
    ///
    /// # Errors
    /// When that is closed.
    pub fn print(&self) -> std::io::Result<()> {
        let head = "| what | this | compared with | ratio | target |\n|---|---|---|---|---|\n";
        write!(std::io::stdout(), "{head}{}", self.0)
    }
}
