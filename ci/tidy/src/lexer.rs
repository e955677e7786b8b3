//! Rust text as tokens: comments dropped, literals without their insides, every token with its place.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword; a raw one (`r#use`) keeps its `r#`, so that it is not taken for the keyword.
    Ident,
    /// `::`, or one other character.
    Punct,
    /// A string, character or number; its text is empty.
    Literal,
    Lifetime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Both from 1; columns count characters.
    pub line: usize,
    pub column: usize,
}

impl Token<'_> {
    pub fn is(&self, text: &str) -> bool {
        self.kind != Kind::Literal && self.text == text
    }

    pub fn is_ident(&self) -> bool {
        self.kind == Kind::Ident
    }
}

pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { rest: text, line: 1, column: 1 };
    std::iter::from_fn(|| lexer.next()).collect()
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    column: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        while let Some(len) = blank_len(self.rest) {
            self.take(len);
        }
        let first = self.rest.chars().next()?;
        let (kind, len) = token_len(self.rest, first);
        let (line, column) = (self.line, self.column);
        let text = self.take(len);
        Some(Token { kind, text: if kind == Kind::Literal { "" } else { text }, line, column })
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        for character in taken.chars() {
            match character {
                '\n' => (self.line, self.column) = (self.line + 1, 1),
                _ => self.column += 1,
            }
        }
        taken
    }
}

/// The length of the white space or comment that `text` begins with.
fn blank_len(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(block_comment_len(text));
    }
    let len = text.len() - text.trim_start().len();
    (len > 0).then_some(len)
}

/// Block comments nest.
fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn token_len(text: &str, first: char) -> (Kind, usize) {
    if let Some(len) = string_len(text) {
        return (Kind::Literal, len);
    }
    if first == '\'' {
        return quote_len(text);
    }
    if first.is_ascii_digit() {
        return (Kind::Literal, number_len(text));
    }
    if is_word(first) {
        let raw = if text.starts_with("r#") { 2 } else { 0 };
        return (Kind::Ident, raw + word_len(&text[raw..]));
    }
    (Kind::Punct, if text.starts_with("::") { 2 } else { first.len_utf8() })
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn word_len(text: &str) -> usize {
    text.find(|character| !is_word(character)).unwrap_or(text.len())
}

/// `"…"`, `r#"…"#`, and both with `b` or `c` before; `b'…'` too.
fn string_len(text: &str) -> Option<usize> {
    let prefix_len = word_len(text);
    let (prefix, rest) = text.split_at(prefix_len);
    match prefix {
        "b" if rest.starts_with('\'') => Some(1 + escaped_len(rest, '\'')),
        "" | "b" | "c" if rest.starts_with('"') => Some(prefix_len + escaped_len(rest, '"')),
        "r" | "br" | "cr" => {
            let hashes = rest.len() - rest.trim_start_matches('#').len();
            if !rest[hashes..].starts_with('"') {
                return None;
            }
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = prefix_len + hashes + 1;
            Some(text[inside..].find(&end).map_or(text.len(), |at| inside + at + end.len()))
        }
        _ => None,
    }
}

/// The length of a literal in `quote`s with backslash escapes.
fn escaped_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + character.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// `'a'` is a character, `'a` a lifetime or label.
fn quote_len(text: &str) -> (Kind, usize) {
    let mut inside = text[1..].chars();
    let first = inside.next();
    let second = inside.next();
    match (first, second) {
        (Some(first), second) if is_word(first) && second != Some('\'') => (Kind::Lifetime, 1 + word_len(&text[1..])),
        _ => (Kind::Literal, escaped_len(text, '\'')),
    }
}

/// A fraction counts only with a digit behind its point, so that `0..len` and `1.max(2)` end before it.
fn number_len(text: &str) -> usize {
    let whole = word_len(text);
    let fraction = text[whole..].strip_prefix('.').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    whole + fraction.map_or(0, |rest| 1 + word_len(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| if token.kind == Kind::Literal { "_" } else { token.text }).collect()
    }

    #[test]
    fn comments_and_the_insides_of_strings_are_gone() {
        assert_eq!(words("a // std::fs\nb"), ["a", "b"]);
        assert_eq!(words("a /* std /* fs */ net */ b"), ["a", "b"]);
        assert_eq!(words(r##"f("std::fs \" x", r#"a " b"#, b"c", br"d", c"e", b'"')"##), words("f(1,1,1,1,1,1)"));
        assert_eq!(words("\"// no comment\" a"), ["_", "a"]);
        assert_eq!(words("\"\\\\\" a"), ["_", "a"]);
    }

    #[test]
    fn quotes_are_characters_or_lifetimes() {
        assert_eq!(words("'\"' a"), ["_", "a"]);
        assert_eq!(words("'\\'' a"), ["_", "a"]);
        assert_eq!(words("<'a, 'static>"), ["<", "'a", ",", "'static", ">"]);
        assert_eq!(words("'ä' b"), ["_", "b"]);
    }

    #[test]
    fn numbers_leave_ranges_and_methods_alone() {
        assert_eq!(
            words("0..len 1.5e3 1.max(2) 0xff_u8"),
            ["_", ".", ".", "len", "_", "_", ".", "max", "(", "_", ")", "_"]
        );
    }

    #[test]
    fn raw_names_are_not_keywords() {
        assert_eq!(words("r#use std::fs r"), ["r#use", "std", "::", "fs", "r"]);
    }

    #[test]
    fn places_count_characters() {
        let all = tokens("/* ä\n*/ \"ö\" x\n  y");
        let place = |text| all.iter().find(|token| token.text == text).map(|token| (token.line, token.column));
        assert_eq!(place("x"), Some((2, 8)));
        assert_eq!(place("y"), Some((3, 3)));
    }
}
