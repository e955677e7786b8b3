//! Answers for people (tables, rounded sizes) and for scripts (JSON).

use serde::Serialize;
use std::io::{self, Write};

/// Rows under a head, each column as wide as its widest cell.
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Table {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "{cells:?} under {:?}", self.head);
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: Vec<String> = self.head.iter().map(|&cell| cell.to_owned()).collect();
        let lines = || std::iter::once(&head).chain(&self.rows);
        let width = |column: usize| lines().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for cells in lines() {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Prints to standard output. A reader that has gone is no reason to panic.
pub fn print(text: impl std::fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()
}

pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    print(format_args!("{text}\n"))
}

/// A size with three digits or so: `0 B`, `999 B`, `1.2 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// `1 record`, `2 records`.
pub fn count(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["id", "address"]);
        table.row(vec!["12".into(), "a:1".into()]);
        table.row(vec!["3".into(), "127.0.0.1:7401".into()]);
        assert_eq!(table.to_string(), "id  address\n12  a:1\n3   127.0.0.1:7401\n");
    }

    #[test]
    fn sizes_are_rounded() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
    }
}
