//! What a table of rows and columns does.
//!
//! A row is an ordered set of cells `(family, qualifier) -> value`. A write names some cells and leaves the others alone, all
//! of its cells at once or none; a row without cells is no row. The wall time of a cell is what it was written at, for the
//! reader's information: the later write wins, whatever the clocks say. A plain value is one cell without names, so that
//! [`crate::map`] is this with nothing but such cells.

use crate::history::{Action, Answer};
use crate::register;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column {
    pub family: Vec<u8>,
    pub qualifier: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub value: Vec<u8>,
    pub wall_ms: u64,
}

pub type Row = BTreeMap<Column, Cell>;

/// A table of rows. Every operation takes effect at once and alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    rows: BTreeMap<Vec<u8>, Row>,
}

/// One cell of a write: a new value, or `None` to delete it.
pub type Change = (Column, Option<Vec<u8>>);

impl Column {
    pub fn new(family: &str, qualifier: &str) -> Column {
        Column { family: family.as_bytes().to_vec(), qualifier: qualifier.as_bytes().to_vec() }
    }
}

impl Rows {
    pub fn new() -> Rows {
        Rows::default()
    }

    /// Writes some cells of a row, in the given order.
    pub fn write(&mut self, row: &[u8], changes: impl IntoIterator<Item = Change>, wall_ms: u64) {
        let mut cells = self.rows.remove(row).unwrap_or_default();
        for (column, value) in changes {
            match value {
                Some(value) => drop(cells.insert(column, Cell { value, wall_ms })),
                None => drop(cells.remove(&column)),
            }
        }
        self.keep(row, cells);
    }

    /// Writes if `column` holds `expected` (`None`: nothing); tells whether it did.
    pub fn write_if(
        &mut self,
        row: &[u8],
        column: &Column,
        expected: Option<&[u8]>,
        changes: impl IntoIterator<Item = Change>,
        wall_ms: u64,
    ) -> bool {
        let holds = self.cell(row, column).map(|cell| cell.value.as_slice()) == expected;
        if holds {
            self.write(row, changes, wall_ms);
        }
        holds
    }

    /// Carries out on one cell what [`crate::register`] says.
    pub fn apply(&mut self, row: &[u8], column: &Column, action: &Action, wall_ms: u64) -> Answer {
        let before = self.cell(row, column).map(|cell| cell.value.clone());
        let mut after = before.clone();
        let answer = register::apply(&mut after, action);
        if after != before || matches!(action, Action::Put(_)) {
            self.write(row, [(column.clone(), after)], wall_ms);
        }
        answer
    }

    /// Whether there was such a row.
    pub fn delete(&mut self, row: &[u8]) -> bool {
        self.rows.remove(row).is_some()
    }

    pub fn row(&self, row: &[u8]) -> Option<&Row> {
        self.rows.get(row)
    }

    pub fn cell(&self, row: &[u8], column: &Column) -> Option<&Cell> {
        self.rows.get(row)?.get(column)
    }

    /// The cells of one family, in the byte order of their qualifiers.
    pub fn family<'a>(&'a self, row: &[u8], family: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a Cell)> {
        let cells = self.rows.get(row).into_iter().flatten();
        cells.filter(move |(column, _)| column.family == family).map(|(column, cell)| (&column.qualifier[..], cell))
    }

    /// In the byte order of the row keys.
    pub fn range(&self, rows: impl RangeBounds<Vec<u8>>) -> impl DoubleEndedIterator<Item = (&[u8], &Row)> {
        self.rows.range(rows).map(|(key, row)| (key.as_slice(), row))
    }

    fn keep(&mut self, row: &[u8], cells: Row) {
        if !cells.is_empty() {
            self.rows.insert(row.to_vec(), cells);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(qualifier: &str, value: &str) -> Change {
        (Column::new("cf", qualifier), Some(value.as_bytes().to_vec()))
    }

    fn delete(qualifier: &str) -> Change {
        (Column::new("cf", qualifier), None)
    }

    fn shown(rows: &Rows, row: &[u8]) -> Vec<(String, String, u64)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        rows.family(row, b"cf").map(|(name, cell)| (text(name), text(&cell.value), cell.wall_ms)).collect()
    }

    #[test]
    fn a_write_of_some_cells_leaves_the_others() {
        let mut rows = Rows::new();
        rows.write(b"r", [put("b", "1"), put("a", "1")], 10);
        rows.write(b"r", [put("b", "2")], 20);
        assert_eq!(shown(&rows, b"r"), [("a".into(), "1".into(), 10), ("b".into(), "2".into(), 20)]);
        rows.write(b"r", [put("b", "3")], 5);
        assert_eq!(shown(&rows, b"r")[1], ("b".into(), "3".into(), 5), "the later write wins, not the later time");
    }

    #[test]
    fn a_row_without_cells_is_no_row() {
        let mut rows = Rows::new();
        rows.write(b"r", [put("a", "1"), delete("a")], 1);
        assert_eq!(rows, Rows::new());
        rows.write(b"r", [put("a", "")], 1);
        assert!(rows.row(b"r").is_some(), "an empty value is a value");
        rows.write(b"r", [delete("a"), delete("never")], 2);
        assert!(!rows.delete(b"r"));
    }

    #[test]
    fn a_write_that_depends_on_a_cell_is_done_whole_or_not_at_all() {
        let mut rows = Rows::new();
        let a = Column::new("cf", "a");
        assert!(!rows.write_if(b"r", &a, Some(b"1"), [put("b", "x")], 1));
        assert!(rows.write_if(b"r", &a, None, [put("a", "1"), put("b", "x")], 1));
        assert!(!rows.write_if(b"r", &a, None, [put("b", "y")], 2));
        assert_eq!(shown(&rows, b"r").len(), 2);
    }

    #[test]
    fn one_cell_counts_and_the_others_do_not_mind() {
        let mut rows = Rows::new();
        let n = Column::new("cf", "n");
        rows.write(b"r", [put("text", "x")], 1);
        assert_eq!(rows.apply(b"r", &n, &Action::Increment(4), 2), Answer::Number(4));
        assert_eq!(rows.apply(b"r", &Column::new("cf", "text"), &Action::Increment(1), 3), Answer::Invalid);
        assert_eq!(shown(&rows, b"r"), [("n".into(), "4".into(), 2), ("text".into(), "x".into(), 1)]);
        assert_eq!(rows.apply(b"r", &n, &Action::Delete, 4), Answer::Deleted(true));
        assert_eq!(rows.row(b"r").map(Row::len), Some(1));
    }

    #[test]
    fn families_and_rows_are_in_byte_order() {
        let mut rows = Rows::new();
        for (row, family) in [("b", "x"), ("a", "y"), ("a", "x"), ("a\0", "")] {
            rows.write(row.as_bytes(), [(Column::new(family, "q"), Some(vec![]))], 0);
        }
        let keys: Vec<&[u8]> = rows.range(..).map(|(key, _)| key).collect();
        assert_eq!(keys, [&b"a"[..], b"a\0", b"b"]);
        let families: Vec<&[u8]> = rows.row(b"a").unwrap().keys().map(|column| &column.family[..]).collect();
        assert_eq!(families, [b"x", b"y"]);
    }
}
