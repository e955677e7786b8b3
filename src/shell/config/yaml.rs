//! A YAML map as keys and values that know their lines.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, MergeKeyPolicy, Spanned};
use std::fmt;

/// One line's key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub line: u64,
    pub value: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Nothing,
    Truth(bool),
    Integer(i128),
    Fraction(f64),
    Text(String),
    List,
    Map(Vec<Entry>),
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub line: u64,
    pub what: String,
}

/// The entries of a document that is one map.
pub fn read(text: &str) -> Result<Vec<Entry>, Wrong> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(Wrong { line: 1, what: "the file is empty: it needs at least one 'key: value' line".into() });
    }
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        with_snippet: false,
    };
    let root = serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| not_yaml(text, &error))?;
    let Node::Map(entries) = root else {
        return Err(Wrong { line: 1, what: format!("the file is {}: it needs 'key: value' lines", root.kind()) });
    };
    refuse_duplicates(&entries)?;
    Ok(entries)
}

fn not_yaml(text: &str, error: &Error) -> Wrong {
    let line = error.location().map_or(1, |location| location.line().max(1));
    let has_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    // The parser may notice the tab a line later than it stands.
    let tab = text.lines().take(line as usize + 1).position(has_tab);
    match tab {
        Some(index) => Wrong { line: index as u64 + 1, what: "a tab indents the line: YAML takes spaces only".into() },
        None => Wrong { line, what: format!("not YAML: {error}") },
    }
}

fn refuse_duplicates(entries: &[Entry]) -> Result<(), Wrong> {
    for (index, entry) in entries.iter().enumerate() {
        if let Some(first) = entries[..index].iter().find(|first| first.key == entry.key) {
            let what = format!("key '{}': stands here again, first on line {}", entry.key, first.line);
            return Err(Wrong { line: entry.line, what });
        }
        if let Node::Map(inner) = &entry.value {
            refuse_duplicates(inner)?;
        }
    }
    Ok(())
}

impl Node {
    /// Text; `wanted` says what it stands for.
    pub fn text(&self, wanted: &str) -> Result<&str, String> {
        match self {
            Node::Text(text) => Ok(text),
            Node::Integer(_) | Node::Fraction(_) | Node::Truth(_) => {
                Err(format!("is {}, and {wanted} is needed (quotes make it text)", self.kind()))
            }
            _ => Err(format!("is {}, and {wanted} is needed", self.kind())),
        }
    }

    /// Text or a whole number, as text.
    pub fn scalar(&self, wanted: &str) -> Result<String, String> {
        match self {
            Node::Text(text) => Ok(text.clone()),
            Node::Integer(number) => Ok(number.to_string()),
            _ => Err(format!("is {}, and {wanted} is needed", self.kind())),
        }
    }

    pub fn map(&self, wanted: &str) -> Result<&[Entry], String> {
        match self {
            Node::Map(entries) => Ok(entries),
            _ => Err(format!("is {}, and a map of {wanted} is needed", self.kind())),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Node::Nothing => "empty",
            Node::Truth(_) => "true or false",
            Node::Integer(_) => "a whole number",
            Node::Fraction(_) => "a number",
            Node::Text(_) => "text",
            Node::List => "a list",
            Node::Map(_) => "a map",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Truth(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Integer(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Node, E> {
        Ok(Node::Integer(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Fraction(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        while list.next_element::<Node>()?.is_some() {}
        Ok(Node::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let line = key.referenced.line();
            entries.push(Entry { key: key.value, line, value: map.next_value()? });
        }
        Ok(Node::Map(entries))
    }
}
