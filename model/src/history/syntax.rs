//! The part of EDN that histories are written in: nil, booleans, integers, strings, keywords, vectors and maps, with
//! comments and commas skipped. Tags are dropped (Jepsen writes `#jepsen.history.Op{…}`), other atoms kept as their text.

use super::ParseError;

#[derive(Clone, Debug, PartialEq)]
pub enum Edn {
    Nil,
    Bool(bool),
    Int(i64),
    Text(String),
    Keyword(String),
    /// A vector, list or set.
    Sequence(Vec<Edn>),
    Map(Vec<(Edn, Edn)>),
    /// A number with a fraction, a symbol, a character.
    Other(String),
}

impl Edn {
    /// The value under a keyword of a map.
    pub fn get(&self, keyword: &str) -> Option<&Edn> {
        let Edn::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| matches!(key, Edn::Keyword(name) if name == keyword)).map(|(_, value)| value)
    }

    pub fn keyword(&self) -> Option<&str> {
        match self {
            Edn::Keyword(name) => Some(name),
            _ => None,
        }
    }

    pub fn unsigned(&self) -> Option<u64> {
        match self {
            Edn::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}

/// Every form of a file with the line it starts on.
pub fn parse(text: &str) -> Result<Vec<(usize, Edn)>, ParseError> {
    let mut parser = Parser { rest: text, line: 1 };
    let mut forms = Vec::new();
    while parser.skip_blank()?.is_some() {
        forms.push(parser.form_with_line()?);
    }
    Ok(forms)
}

/// Gives each event of a file to `take`, with its process and time. Without `:time` the place in the file is the time. Events
/// of a process that is not a number (the nemesis) are skipped.
pub fn read_events(text: &str, mut take: impl FnMut(u64, u64, &Edn) -> Result<(), String>) -> Result<(), ParseError> {
    for (at, (line, event)) in parse_events(text)?.iter().enumerate() {
        let taken = process_and_time(at as u64, event).and_then(|found| match found {
            Some((process, time_ns)) => take(process, time_ns, event),
            None => Ok(()),
        });
        taken.map_err(|what| ParseError { line: *line, what })?;
    }
    Ok(())
}

fn process_and_time(at: u64, event: &Edn) -> Result<Option<(u64, u64)>, String> {
    let Some(process) = event.get("process").ok_or("no :process")?.unsigned() else { return Ok(None) };
    let time_ns = match event.get("time") {
        Some(time) => time.unsigned().ok_or(":time is not a number of nanoseconds")?,
        None => at,
    };
    Ok(Some((process, time_ns)))
}

/// The forms of a vector that is the whole file, with their lines; or the file's forms when it is a stream of them.
fn parse_events(text: &str) -> Result<Vec<(usize, Edn)>, ParseError> {
    let mut parser = Parser { rest: text, line: 1 };
    if parser.skip_blank()? != Some('[') {
        return parse(text);
    }
    parser.bump();
    let mut events = Vec::new();
    loop {
        match parser.skip_blank()? {
            Some(']') => return Ok(events),
            Some(_) => events.push(parser.form_with_line()?),
            None => return parser.fail("the vector is not closed"),
        }
    }
}

/// Longest nesting accepted; a history has three levels.
const DEPTH_MAX: u32 = 64;

struct Parser<'a> {
    rest: &'a str,
    line: usize,
}

impl Parser<'_> {
    fn form_with_line(&mut self) -> Result<(usize, Edn), ParseError> {
        let line = self.line;
        Ok((line, self.form(0)?))
    }

    fn form(&mut self, depth: u32) -> Result<Edn, ParseError> {
        if depth > DEPTH_MAX {
            return self.fail("nested too deeply");
        }
        match self.skip_blank()? {
            None => self.fail("the file ends inside a form"),
            Some('{') => self.map(depth),
            Some('[') => self.sequence(']', depth),
            Some('(') => self.sequence(')', depth),
            Some('"') => self.text(),
            Some('#') => self.dispatch(depth),
            Some(other @ (']' | ')' | '}')) => self.fail(&format!("{other:?} closes nothing")),
            Some(_) => self.atom(),
        }
    }

    fn map(&mut self, depth: u32) -> Result<Edn, ParseError> {
        let Edn::Sequence(forms) = self.sequence('}', depth)? else { unreachable!("a sequence is a sequence") };
        if forms.len() % 2 != 0 {
            return self.fail("a map has a key without a value");
        }
        let mut forms = forms.into_iter();
        let mut entries = Vec::new();
        while let (Some(key), Some(value)) = (forms.next(), forms.next()) {
            entries.push((key, value));
        }
        Ok(Edn::Map(entries))
    }

    fn sequence(&mut self, close: char, depth: u32) -> Result<Edn, ParseError> {
        self.bump();
        let mut forms = Vec::new();
        while self.skip_blank()? != Some(close) {
            forms.push(self.form(depth + 1)?);
        }
        self.bump();
        Ok(Edn::Sequence(forms))
    }

    fn text(&mut self) -> Result<Edn, ParseError> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None => return self.fail("the string is not closed"),
                Some('"') => return Ok(Edn::Text(text)),
                Some('\\') => text.push(self.escape()?),
                Some(other) => text.push(other),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        match self.bump() {
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some(other @ ('"' | '\\')) => Ok(other),
            Some(other) => self.fail(&format!("\\{other} is no escape")),
            None => self.fail("the string is not closed"),
        }
    }

    /// `#{…}` is a set, `#tag form` the form. (`#_` was skipped as blank.)
    fn dispatch(&mut self, depth: u32) -> Result<Edn, ParseError> {
        self.bump();
        if self.rest.starts_with('{') {
            return self.sequence('}', depth);
        }
        self.word();
        self.form(depth + 1)
    }

    fn atom(&mut self) -> Result<Edn, ParseError> {
        let word = self.word();
        Ok(match word.as_str() {
            "nil" => Edn::Nil,
            "true" => Edn::Bool(true),
            "false" => Edn::Bool(false),
            "" => return self.fail("a character that starts nothing"),
            _ => match (word.strip_prefix(':'), word.parse()) {
                (Some(name), _) => Edn::Keyword(name.to_owned()),
                (None, Ok(number)) => Edn::Int(number),
                (None, Err(_)) => Edn::Other(word),
            },
        })
    }

    fn word(&mut self) -> String {
        let ends = |c: char| c.is_whitespace() || ",;\"()[]{}".contains(c);
        let len = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest;
        word.to_owned()
    }

    /// Skips white space, comments and discarded forms; returns the next character without taking it.
    fn skip_blank(&mut self) -> Result<Option<char>, ParseError> {
        loop {
            match self.rest.chars().next() {
                Some(blank) if blank.is_whitespace() || blank == ',' => drop(self.bump()),
                Some(';') => while !matches!(self.bump(), None | Some('\n')) {},
                Some('#') if self.rest.starts_with("#_") => {
                    self.rest = &self.rest[2..];
                    self.form(1)?;
                }
                next => return Ok(next),
            }
        }
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn fail<T>(&self, what: &str) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, what: what.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_jepsen_prints() {
        let text = "; a comment\n#jepsen.history.Op{:index 3, :type :ok, :value [nil \"a\\\"b\" -7 2.5 #{1}] #_ skipped}\n{:f :read}";
        let forms = parse(text).unwrap();
        assert_eq!((forms[0].0, forms[1].0), (2, 3));
        let values = vec![
            Edn::Nil,
            Edn::Text("a\"b".into()),
            Edn::Int(-7),
            Edn::Other("2.5".into()),
            Edn::Sequence(vec![Edn::Int(1)]),
        ];
        assert_eq!(forms[0].1.get("value"), Some(&Edn::Sequence(values)));
        assert_eq!(forms[0].1.get("index").and_then(Edn::unsigned), Some(3));
        assert_eq!(forms[1].1.get("f").and_then(Edn::keyword), Some("read"));
    }

    #[test]
    fn broken_text_is_an_error_with_its_line() {
        for (text, line) in [("\n{:a", 2), ("[1\n2", 2), ("{:a}", 1), ("\"x", 1), ("\n\n}", 3), ("{:a \"\\q\"}", 1)] {
            assert_eq!(parse_events(text).unwrap_err().line, line, "{text:?}");
        }
        assert!(parse(&"[".repeat(10_000)).is_err());
    }
}
