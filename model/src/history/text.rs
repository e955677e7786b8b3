//! Keys and values as text: what is readable stays readable, everything survives.
//!
//! Bytes that are UTF-8 without control characters are written as they are; all others as `hex:` and two digits a byte, and
//! so is a text that starts with `hex:` itself.

use crate::limits;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

const HEX: &str = "hex:";

pub fn encode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(HEX) && !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.iter().fold(HEX.to_owned(), |text, byte| text + &format!("{byte:02x}")),
    }
}

/// None if the text claims to be hexadecimal and is not.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix(HEX) else { return Some(text.as_bytes().to_vec()) };
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect()
}

/// For people: quoted, and cut where it would be long.
pub fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len().min(limits::SHOWN_BYTES_MAX);
    let text = String::from_utf8_lossy(&bytes[..cut]);
    match bytes.len() - cut {
        0 => format!("{text:?}"),
        rest => format!("{text:?} and {rest} bytes more"),
    }
}

pub fn shown_entry(entry: &Option<Vec<u8>>) -> String {
    entry.as_deref().map_or_else(|| "absent".to_owned(), shown)
}

pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(bytes))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not hexadecimal")))
}

/// `null` is absence.
pub mod optional {
    use super::*;

    pub fn serialize<S: Serializer>(entry: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        match entry {
            Some(bytes) => super::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        decode(&text).map(Some).ok_or_else(|| D::Error::custom(format!("{text:?} is not hexadecimal")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_bytes_survives() {
        for bytes in [&b""[..], b"user1", "h\u{e9}".as_bytes(), b"hex:", b"hex:00", b"\0", b"a\nb", b"\xff\xfe"] {
            assert_eq!(decode(&encode(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(encode(b"a\nb"), "hex:610a62");
        assert_eq!(decode("hex:0"), None);
        assert_eq!(decode("hex:zz"), None);
    }
}
