use super::*;

fn record(key: &[u8], value: &[u8]) -> Result<Option<Record>, Malformed> {
    Ok(Some(Record { key: Bytes::copy_from_slice(key), value: Bytes::copy_from_slice(value) }))
}

#[test]
fn every_byte_comes_back_in_both_formats() {
    let all: Vec<u8> = (0..=255).collect();
    let pairs: [(&[u8], &[u8]); 7] = [
        (b"k", b""),
        (b"tab\tkey", b"line\nfeed\\ and \r\n"),
        (b"\r", b"\r"),
        (b"\\", b"\\t"),
        ("gr\u{fc}n".as_bytes(), "\u{2028}\"quoted\"".as_bytes()),
        (&all, &all),
        (b"\xff\xfe", b"\x00"),
    ];
    for format in [Format::Tsv, Format::Jsonl] {
        for (key, value) in pairs {
            let mut line = Vec::new();
            format.write(key, value, &mut line);
            assert_eq!(line.pop(), Some(b'\n'));
            assert!(!line.contains(&b'\n'), "{format:?} {key:?} spreads over lines");
            assert_eq!(format.parse(&line), record(key, value), "{format:?}");
        }
    }
}

#[test]
fn windows_line_ends_and_empty_lines_are_understood() {
    assert_eq!(Format::Tsv.parse(b"a\tb\r"), record(b"a", b"b"));
    assert_eq!(Format::Jsonl.parse(b"{\"key\": \"a\", \"value\": \"b\"}\r"), record(b"a", b"b"));
    assert_eq!(Format::Tsv.parse(b""), Ok(None));
    assert_eq!(Format::Jsonl.parse(b"\r"), Ok(None));
}

#[test]
fn text_and_base64_are_the_same_record() {
    let line = br#"{"key_base64": "YQ==", "value": "b"}"#;
    assert_eq!(Format::Jsonl.parse(line), record(b"a", b"b"));
}

#[test]
fn malformed_lines_say_why() {
    let wrong = [
        (Format::Tsv, &b"key only"[..], "no tab between a key and a value"),
        (Format::Tsv, b"a\tb\tc", "more than one tab"),
        (Format::Tsv, b"\tvalue", "the key is empty"),
        (Format::Tsv, b"a\t\\x", "'\\x' is no escape"),
        (Format::Tsv, b"a\tb\\", "ends within an escape"),
        (Format::Jsonl, b"nonsense", "no JSON record: expected ident (column 2)"),
        (Format::Jsonl, br#"{"key": 1, "value": "b"}"#, "expected a string"),
        (Format::Jsonl, br#"{"key": "a"}"#, "neither value nor value_base64"),
        (Format::Jsonl, br#"{"key": "a", "key_base64": "YQ==", "value": ""}"#, "both key and key_base64"),
        (Format::Jsonl, br#"{"key_base64": "?", "value": ""}"#, "key_base64 is no base64"),
        (Format::Jsonl, br#"{"key": "a", "value": "b", "ttl": 1}"#, "unknown field `ttl`"),
        (Format::Jsonl, br#"{"key": "", "value": "b"}"#, "the key is empty"),
        (Format::Jsonl, b"{\"key\": \"\xff\", \"value\": \"b\"}", "no JSON record"),
    ];
    for (format, line, expected) in wrong {
        let error = format.parse(line).unwrap_err().to_string();
        assert!(error.contains(expected), "{line:?} gave {error:?}");
    }
}
