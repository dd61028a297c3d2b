//! A table for `bench/results`: measurement, comparison and target.

use std::fmt::Write as _;
use std::io::Write as _;

use acceptance::print_line;

/// Rows, in order.
#[derive(Debug, Default)]
pub struct Table(String);

impl Table {
    /// Adds a row: what, this, compared with, ratio, target. Also prints it at once.
    pub fn row(&mut self, cells: [&str; 5]) {
        let line = format!("| {} |", cells.join(" | "));
        print_line(&line);
        let _ = writeln!(self.0, "{line}");
    }

    /// Prints the table on standard output.
    ///
    /// # Errors
    /// When standard output is closed.
    pub fn print(&self) -> std::io::Result<()> {
        let head = "| what | this | compared with | ratio | target |\n|---|---|---|---|---|\n";
        write!(std::io::stdout(), "{head}{}", self.0)
    }
}
