//! A history as a file for a checker that is not ours.
//!
//! | format   | for                                | holds                                            |
//! |----------|------------------------------------|--------------------------------------------------|
//! | `edn`    | Knossos (`cas-register`)           | a map for each call and return; one key is best  |
//! | `elle`   | Elle (`list-append`)               | gets, and appends of a number and a space        |
//! | `jsonl`  | Porcupine                          | an operation a line, unknown ones without an end |

use super::{Form, History, edn, porcupine};
use std::io::{self, Write};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Edn,
    Elle,
    Jsonl,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Edn, Format::Elle, Format::Jsonl];

    pub fn name(self) -> &'static str {
        match self {
            Format::Edn => "edn",
            Format::Elle => "elle",
            Format::Jsonl => "jsonl",
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| format!("{name:?} is no format: edn, elle or jsonl"))
    }
}

/// Writes `history`, or with `key` what it says about that key: Knossos' command line takes one key a file.
pub fn export(history: &History, key: Option<&[u8]>, format: Format, to: impl Write) -> Result<(), edn::WriteError> {
    let of_key = key.map(|key| history.of_key(key));
    let history = of_key.as_ref().unwrap_or(history);
    match format {
        Format::Edn => edn::write(history, Form::Register, to),
        Format::Elle => edn::write(history, Form::ListAppend, to),
        Format::Jsonl => porcupine::write(history, to).map_err(edn::WriteError::Io),
    }
}

/// One file for each key: `file` opens it. A key's file has the key's place among them in its name, not the key, which may be
/// any bytes.
pub fn export_by_key<W: Write>(
    history: &History,
    format: Format,
    mut file: impl FnMut(&str) -> io::Result<W>,
) -> Result<(), edn::WriteError> {
    for (at, key) in history.by_key().keys().enumerate() {
        let extension = if format == Format::Jsonl { "jsonl" } else { "edn" };
        let to = file(&format!("key-{at:05}.{extension}"))?;
        export(history, Some(key), format, to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Answer};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    fn history() -> History {
        let mut history = History::new();
        for (client, key) in [(0, "1"), (1, "2")] {
            let append = history.call(client, 10 * client, key, Action::Append(b"5 ".to_vec()));
            history.done(append, 10 * client + 5, Answer::Length(2), None);
            let get = history.call(client, 10 * client + 6, key, Action::Get);
            history.done(get, 10 * client + 9, Answer::Value(Some(b"5 ".to_vec())), None);
        }
        history
    }

    fn text(key: Option<&[u8]>, format: Format) -> String {
        let mut written = Vec::new();
        export(&history(), key, format, &mut written).unwrap();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn a_format_is_known_by_its_name() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert!("xml".parse::<Format>().is_err());
    }

    #[test]
    fn each_format_holds_the_history() {
        assert_eq!(edn::read(&text(None, Format::Edn)).unwrap(), history());
        assert_eq!(porcupine::read(&text(None, Format::Jsonl)).unwrap(), history());
        assert!(text(None, Format::Elle).contains(":type :ok, :f :txn, :value [[:r 2 [5]]]"));
        assert_eq!(porcupine::read(&text(Some(b"2"), Format::Jsonl)).unwrap(), history().of_key(b"2"));
    }

    /// Bytes that stay reachable when the writer is gone.
    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_for_each_key_has_what_is_said_about_it() {
        let mut files: BTreeMap<String, Shared> = BTreeMap::new();
        export_by_key(&history(), Format::Edn, |name| Ok(files.entry(name.to_owned()).or_default().clone())).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["key-00000.edn", "key-00001.edn"]);
        let text = String::from_utf8(files["key-00001.edn"].0.borrow().clone()).unwrap();
        assert_eq!(edn::read(&text).unwrap(), history().of_key(b"2"));
    }
}
