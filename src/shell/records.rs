//! Records as lines of text, for import and export. Whatever bytes a key and a value hold, a line gives them back.
//!
//! - **TSV**: `KEY<tab>VALUE`. In both, `\t` is a tab, `\n` a line feed, `\r` a carriage return, `\0` a zero byte, `\\` a
//!   backslash; every other byte stands for itself, so the file need not be UTF-8. A carriage return right before the end
//!   of the line does not count: files with Windows line ends read the same.
//! - **JSON lines**: `{"key": "..", "value": ".."}`. Bytes that are no UTF-8 go as base64, in `key_base64` or
//!   `value_base64` instead.
//!
//! Empty lines say nothing. Keys are not empty; values may be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// KEY, a tab, VALUE; with \t \n \r \0 \\ escaped
    Tsv,
    /// {"key": "..", "value": ".."} or key_base64, value_base64
    Jsonl,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Bytes,
    pub value: Bytes,
}

/// Why a line is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("no tab between a key and a value")]
    NoTab,
    #[error("more than one tab (a tab in a key or a value is written \\t)")]
    SecondTab,
    #[error("'\\{0}' is no escape (they are \\t \\n \\r \\0 \\\\)")]
    Escape(char),
    #[error("ends within an escape")]
    EscapeCut,
    #[error("the key is empty")]
    EmptyKey,
    #[error("no JSON record: {0}")]
    Json(String),
    #[error("neither {0} nor {0}_base64")]
    Missing(&'static str),
    #[error("both {0} and {0}_base64")]
    Twice(&'static str),
    #[error("{0}_base64 is no base64: {1}")]
    Base64(&'static str, base64::DecodeError),
}

impl Format {
    /// The record of a line (without its line feed); `None` for an empty line.
    pub fn parse(self, line: &[u8]) -> Result<Option<Record>, Malformed> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(None);
        }
        let record = match self {
            Format::Tsv => parse_tsv(line)?,
            Format::Jsonl => parse_json(line)?,
        };
        if record.key.is_empty() { Err(Malformed::EmptyKey) } else { Ok(Some(record)) }
    }

    /// Appends the record's line, with its line feed.
    pub fn write(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            Format::Tsv => {
                escape(key, out);
                out.push(b'\t');
                escape(value, out);
            }
            Format::Jsonl => serde_json::to_writer(&mut *out, &JsonRecord::of(key, value)).expect("a Vec takes all"),
        }
        out.push(b'\n');
    }
}

fn parse_tsv(line: &[u8]) -> Result<Record, Malformed> {
    let tab = line.iter().position(|&byte| byte == b'\t').ok_or(Malformed::NoTab)?;
    let (key, value) = (&line[..tab], &line[tab + 1..]);
    if value.contains(&b'\t') {
        return Err(Malformed::SecondTab);
    }
    Ok(Record { key: unescape(key)?.into(), value: unescape(value)?.into() })
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'\t' => out.extend(b"\\t"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\0' => out.extend(b"\\0"),
            b'\\' => out.extend(b"\\\\"),
            _ => out.push(byte),
        }
    }
}

fn unescape(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match rest.next().ok_or(Malformed::EscapeCut)? {
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'0' => b'\0',
            b'\\' => b'\\',
            other => return Err(Malformed::Escape(other.into())),
        });
    }
    Ok(out)
}

/// Bytes of a record in JSON: as text where they are UTF-8, as base64 where not.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl JsonRecord {
    pub fn of(key: &[u8], value: &[u8]) -> JsonRecord {
        let (key, key_base64) = text_or_base64(key);
        let (value, value_base64) = text_or_base64(value);
        JsonRecord { key, key_base64, value, value_base64 }
    }
}

/// The bytes as text, or else as base64.
pub fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

fn parse_json(line: &[u8]) -> Result<Record, Malformed> {
    let record: JsonRecord = serde_json::from_slice(line).map_err(|error| Malformed::Json(reason(&error)))?;
    Ok(Record {
        key: either("key", record.key, record.key_base64)?,
        value: either("value", record.value, record.value_base64)?,
    })
}

/// The error without its place: a line of its own is "line 1" to the parser.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line 1") {
        Some(end) => format!("{} (column {})", &text[..end], error.column()),
        None => text,
    }
}

fn either(field: &'static str, text: Option<String>, base64: Option<String>) -> Result<Bytes, Malformed> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into()),
        (None, Some(base64)) => BASE64.decode(base64).map(Bytes::from).map_err(|error| Malformed::Base64(field, error)),
        (None, None) => Err(Malformed::Missing(field)),
        (Some(_), Some(_)) => Err(Malformed::Twice(field)),
    }
}

#[cfg(test)]
mod tests;
