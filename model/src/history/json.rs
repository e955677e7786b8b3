//! One operation a line, as checkers in the manner of Porcupine take them: client, call, return, input, output.
//!
//! ```text
//! {"client":1,"key":"x","call_ns":10,"return_ns":20,"op":"put","input":"1","outcome":"done","output":"written"}
//! {"client":2,"key":"x","call_ns":15,"return_ns":null,"op":"increment","input":1,"outcome":"unknown"}
//! ```

use super::{History, Operation, Outcome, ParseError};
use std::io::{self, Write};

pub fn write(history: &History, mut to: impl Write) -> io::Result<()> {
    for operation in history.operations() {
        serde_json::to_writer(&mut to, operation)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

pub fn read(text: &str) -> Result<History, ParseError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let operations: Result<Vec<Operation>, ParseError> = lines.map(|(at, line)| read_line(line, at + 1)).collect();
    Ok(History::from_operations(operations?))
}

fn read_line(text: &str, line: usize) -> Result<Operation, ParseError> {
    let error = |what: String| ParseError { line, what };
    let operation: Operation = serde_json::from_str(text).map_err(|source| error(source.to_string()))?;
    if operation.return_ns.is_none() != (operation.outcome == Outcome::Unknown) {
        return Err(error("only an operation of unknown outcome has no return".to_owned()));
    }
    if operation.return_ns.is_some_and(|return_ns| return_ns < operation.call_ns) {
        return Err(error("returned before it was called".to_owned()));
    }
    Ok(operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named() {
        let good =
            r#"{"client":1,"key":"x","call_ns":1,"return_ns":null,"op":"increment","input":1,"outcome":"unknown"}"#;
        assert_eq!(read(good).unwrap().len(), 1);
        for bad in ["{", &good.replace("null", "5"), &good.replace("\"x\"", "\"hex:0\"")] {
            let error = read(&format!("{good}\n\n{bad}\n")).unwrap_err();
            assert_eq!(error.line, 3, "{error}");
        }
    }
}
