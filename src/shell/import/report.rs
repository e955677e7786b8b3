//! Lines in error: counted, shown, kept.

use crate::shell::limits::IMPORT_ERRORS_SHOWN_MAX;
use std::io::{self, Write};
use std::path::Path;

pub struct Report {
    errors: u64,
    errors_max: u64,
    /// Each line in error with its number and what is wrong.
    file: Option<Box<dyn Write + Send>>,
}

/// What follows from one more line in error.
#[derive(Debug)]
pub struct Added {
    pub errors: u64,
    /// To be shown.
    pub note: Option<String>,
    pub too_many: bool,
}

impl Report {
    pub fn new(errors_max: u64, file: Option<&Path>) -> io::Result<Report> {
        let file = file.map(|file| env::real::user_output(Some(file))).transpose()?;
        Ok(Report { errors: 0, errors_max, file })
    }

    pub fn add(&mut self, line: u64, why: &str, content: &[u8]) -> io::Result<Added> {
        self.errors += 1;
        if let Some(file) = &mut self.file {
            write!(file, "{line}\t{why}\t")?;
            file.write_all(content)?;
            file.write_all(b"\n")?;
        }
        Ok(Added { errors: self.errors, note: self.note(line, why), too_many: self.errors > self.errors_max })
    }

    fn note(&self, line: u64, why: &str) -> Option<String> {
        let rest =
            if self.file.is_some() { "the rest is in the errors file" } else { "--errors-file FILE keeps them all" };
        match self.errors {
            ..=IMPORT_ERRORS_SHOWN_MAX => Some(format!("line {line}: {why}")),
            errors if errors == IMPORT_ERRORS_SHOWN_MAX + 1 => {
                Some(format!("more lines in error are not shown; {rest}"))
            }
            _ => None,
        }
    }

    /// To be called at the end: the last lines may only now reach the file, or fail to.
    pub fn finish(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_errors_are_shown_all_are_counted_and_too_many_are_too_many() {
        let mut report = Report::new(12, None).unwrap();
        for line in 1..=IMPORT_ERRORS_SHOWN_MAX {
            assert_eq!(report.add(line, "wrong", b"x").unwrap().note, Some(format!("line {line}: wrong")));
        }
        assert!(report.add(11, "wrong", b"x").unwrap().note.unwrap().contains("--errors-file"));
        let twelfth = report.add(12, "wrong", b"x").unwrap();
        assert!(twelfth.note.is_none() && !twelfth.too_many && twelfth.errors == 12);
        assert!(report.add(13, "wrong", b"x").unwrap().too_many);
    }
}
