//! Commands on one record.

use crate::client::{Compared, Table};
use crate::shell::args::*;
use crate::shell::cluster;
use crate::shell::failure::Failure;
use crate::shell::output::{print, print_bytes, print_json};
use crate::shell::records::{JsonRecord, text_or_base64};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use env::Env;
use std::io::Read;
use std::path::Path;

pub async fn put(env: &Env, command: &Put) -> Result<(), Failure> {
    let key = command.form.key(&command.record.key)?;
    let value = match (&command.value, &command.file) {
        (Some(value), _) => command.form.value(value)?,
        (None, Some(file)) => read_value(env, file).await?,
        (None, None) => unreachable!("one of them is required"),
    };
    table(env, &command.connection, &command.record).await?.put(key, value).await?;
    Ok(print("ok\n")?)
}

pub async fn get(env: &Env, command: &Get) -> Result<(), Failure> {
    let key = command.form.key(&command.record.key)?;
    let table = table(env, &command.connection, &command.record).await?;
    let value = table.get(key.clone()).await?;
    match value {
        None => Err(Failure::Failed(format!("{} has no record '{}'", command.record.table, command.record.key))),
        Some(value) if command.output.json => Ok(print_json(&JsonRecord::of(&key, &value))?),
        Some(value) if command.raw => Ok(print_bytes(&value)?),
        Some(value) => {
            let mut line = command.form.encoding.encode(&value);
            line.push(b'\n');
            Ok(print_bytes(&line)?)
        }
    }
}

pub async fn delete(env: &Env, command: &Delete) -> Result<(), Failure> {
    let key = command.form.key(&command.record.key)?;
    let table = table(env, &command.connection, &command.record).await?;
    let existed = table.delete(key).await?;
    Ok(print(if existed { "deleted\n" } else { "there was none\n" })?)
}

pub async fn cas(env: &Env, command: &Cas) -> Result<(), Failure> {
    let key = command.form.key(&command.record.key)?;
    let (expected, new) = compared_values(command)?;
    let table = table(env, &command.connection, &command.record).await?;
    match table.compare_and_set(key, expected, new).await? {
        Compared::Set => Ok(print("ok\n")?),
        Compared::Differs(None) => Err(Failure::failed("not set: there is no record")),
        Compared::Differs(Some(actual)) => {
            let actual = command.form.encoding.encode(&actual);
            Err(Failure::Failed(format!("not set: the value is '{}'", String::from_utf8_lossy(&actual))))
        }
    }
}

/// The expected and the new value; `None` for absent.
fn compared_values(command: &Cas) -> Result<(Option<Bytes>, Option<Bytes>), Failure> {
    let value = |text: &String| command.form.value(text).map(Some);
    match (command.values.as_slice(), command.absent, command.delete) {
        ([expected, new], false, false) => Ok((value(expected)?, value(new)?)),
        ([new], true, false) => Ok((None, value(new)?)),
        ([expected], false, true) => Ok((value(expected)?, None)),
        ([_], false, false) => {
            Err(Failure::usage("give the EXPECTED and the NEW value, or one of --absent and --delete"))
        }
        _ => Err(Failure::usage("with --absent give the NEW value alone, with --delete the EXPECTED one alone")),
    }
}

pub async fn increment(env: &Env, command: &Increment) -> Result<(), Failure> {
    let key = command.form.key(&command.record.key)?;
    let table = table(env, &command.connection, &command.record).await?;
    let sum = table.increment(key, command.delta).await?;
    Ok(print(format_args!("{sum}\n"))?)
}

pub async fn append(env: &Env, command: &Append) -> Result<(), Failure> {
    let key = command.form.key(&command.record.key)?;
    let suffix = command.form.value(&command.suffix)?;
    let table = table(env, &command.connection, &command.record).await?;
    let len = table.append(key, suffix).await?;
    Ok(print(format_args!("{len}\n"))?)
}

async fn table(env: &Env, connection: &Connection, record: &RecordOf) -> Result<Table, Failure> {
    Ok(cluster::connect(env, connection).await?.table(record.table.clone()))
}

async fn read_value(env: &Env, file: &Path) -> Result<Bytes, Failure> {
    let file = (file != Path::new("-")).then(|| file.to_owned());
    let read = move || {
        let mut value = Vec::new();
        env::real::user_input(file.as_deref())?.read_to_end(&mut value)?;
        Ok::<_, std::io::Error>(value)
    };
    let value = env.blocking(read).await.map_err(Failure::failed)??;
    Ok(value.into())
}

impl BytesForm {
    pub fn key(&self, text: &str) -> Result<Bytes, Failure> {
        let key = self.value(text)?;
        if key.is_empty() { Err(Failure::usage("the key is empty")) } else { Ok(key) }
    }

    pub fn value(&self, text: &str) -> Result<Bytes, Failure> {
        self.encoding.decode(text).map_err(Failure::Usage)
    }
}

impl Encoding {
    fn decode(self, text: &str) -> Result<Bytes, String> {
        match self {
            Encoding::Text => Ok(Bytes::copy_from_slice(text.as_bytes())),
            Encoding::Hex => decode_hex(text).ok_or_else(|| format!("'{text}' is not written in hex")),
            Encoding::Base64 => {
                BASE64.decode(text).map(Bytes::from).map_err(|error| format!("'{text}' is no base64: {error}"))
            }
        }
    }

    pub fn encode(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Encoding::Text => bytes.to_vec(),
            Encoding::Hex => bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
            Encoding::Base64 => BASE64.encode(bytes).into_bytes(),
        }
    }
}

fn decode_hex(text: &str) -> Option<Bytes> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Bytes for people: as text where they are, else in hex.
pub fn readable(bytes: &[u8]) -> String {
    match text_or_base64(bytes) {
        (Some(text), _) if !text.contains(char::is_control) => text,
        _ => format!("0x{}", String::from_utf8_lossy(&Encoding::Hex.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_in_every_encoding() {
        let all: Vec<u8> = (0..=255).collect();
        for encoding in [Encoding::Hex, Encoding::Base64] {
            let text = String::from_utf8(encoding.encode(&all)).unwrap();
            assert_eq!(encoding.decode(&text).unwrap(), all);
        }
        assert_eq!(Encoding::Text.decode("gr\u{fc}n").unwrap(), "gr\u{fc}n".as_bytes());
        for bad in ["0", "zz", "+1", "0x00"] {
            assert!(Encoding::Hex.decode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn people_see_text_or_hex() {
        assert_eq!(readable(b"user7"), "user7");
        assert_eq!(readable(b"\x80\x00"), "0x8000");
        assert_eq!(readable(b"a\nb"), "0x610a62");
    }
}
