//! One operation a line, with the names that Porcupine's `Operation` has, so that its lines are read by `json.Unmarshal`.
//!
//! ```text
//! {"ClientId":1,"Input":{"key":"x","op":"put","input":"1"},"Call":10,"Output":{"outcome":"done","output":"written"},"Return":20}
//! {"ClientId":2,"Input":{"key":"x","op":"increment","input":1},"Call":15,"Output":{"outcome":"unknown"},"Return":9223372036854775807}
//! ```
//!
//! Intervals are closed. An operation of unknown outcome returns at the end of time, so that it may take effect at any moment
//! after its call, or after everything: its step is legal whatever it finds. One that was not done is there too, and its step
//! changes nothing. A `Step` written for Porcupine has to say both; [`crate::register::Register`] is one to copy. The key is a
//! part of the input, so that Porcupine can partition by it. The version is ours.

use super::{Action, History, Operation, Outcome, ParseError, Version, text};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// When an operation returns that never did: Go's `math.MaxInt64`.
const END_OF_TIME: i64 = i64::MAX;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    client_id: i64,
    input: Input,
    call: i64,
    output: Output,
    r#return: i64,
}

#[derive(Serialize, Deserialize)]
struct Input {
    #[serde(with = "text")]
    key: Vec<u8>,
    #[serde(flatten)]
    action: Action,
}

#[derive(Serialize, Deserialize)]
struct Output {
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
}

/// # Errors
/// When writing fails, or a time or a client's number is beyond 2^63.
pub fn write(history: &History, mut to: impl Write) -> io::Result<()> {
    for operation in history.operations() {
        serde_json::to_writer(&mut to, &line(operation)?)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

fn line(operation: &Operation) -> io::Result<Line> {
    let Operation { client, key, call_ns, return_ns, action, outcome, version } = operation.clone();
    let signed = |number: u64| i64::try_from(number).map_err(io::Error::other);
    Ok(Line {
        client_id: signed(client)?,
        input: Input { key, action },
        call: signed(call_ns)?,
        output: Output { outcome, version },
        r#return: return_ns.map_or(Ok(END_OF_TIME), signed)?,
    })
}

pub fn read(text: &str) -> Result<History, ParseError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let operations: Result<Vec<Operation>, ParseError> =
        lines.map(|(at, text)| read_line(text).map_err(|what| ParseError { line: at + 1, what })).collect();
    Ok(History::from_operations(operations?))
}

fn read_line(text: &str) -> Result<Operation, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let unsigned = |number: i64| u64::try_from(number).map_err(|_| format!("{number} is below zero"));
    let is_unknown = line.output.outcome == Outcome::Unknown;
    if is_unknown != (line.r#return == END_OF_TIME) {
        return Err("an operation returns at the end of time exactly when its outcome is unknown".into());
    }
    if line.r#return < line.call {
        return Err("returned before it was called".into());
    }
    Ok(Operation {
        client: unsigned(line.client_id)?,
        key: line.input.key,
        call_ns: unsigned(line.call)?,
        return_ns: if is_unknown { None } else { Some(unsigned(line.r#return)?) },
        action: line.input.action,
        outcome: line.output.outcome,
        version: line.output.version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;

    #[test]
    fn lines_are_what_porcupine_unmarshals() {
        let mut history = History::new();
        let put = history.call(1, 10, "x", Action::Put(b"1".to_vec()));
        history.call(2, 15, "x", Action::Increment(1));
        history.done(put, 20, Answer::Written, Some(Version { epoch: 1, seqno: 7 }));
        let mut written = Vec::new();
        write(&history, &mut written).unwrap();
        let text = String::from_utf8(written).unwrap();
        let expected = r#"{"ClientId":1,"Input":{"key":"x","op":"put","input":"1"},"Call":10,"Output":{"outcome":"done","output":"written","version":[1,7]},"Return":20}
{"ClientId":2,"Input":{"key":"x","op":"increment","input":1},"Call":15,"Output":{"outcome":"unknown"},"Return":9223372036854775807}
"#;
        assert_eq!(text, expected);
        assert_eq!(read(&text).unwrap(), history);
    }

    #[test]
    fn a_bad_line_is_named() {
        let good =
            r#"{"ClientId":1,"Input":{"key":"x","op":"get"},"Call":5,"Output":{"outcome":"not_done"},"Return":9}"#;
        assert_eq!(read(good).unwrap().len(), 1);
        let ends = good.replace("\"Return\":9", "\"Return\":9223372036854775807");
        for bad in ["{", &ends, &good.replace("\"Return\":9", "\"Return\":4"), &good.replace(":1,", ":-1,")] {
            assert_eq!(read(&format!("{good}\n\n{bad}\n")).unwrap_err().line, 3, "{bad}");
        }
    }
}
