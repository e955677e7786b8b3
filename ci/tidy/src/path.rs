//! The paths that a file names, with what `use` renames undone: `use std as s; s::fs::read(..)` names `std::fs::read`.
//!
//! Renames hold for the whole file, whatever block they stand in, so that a rule errs towards finding.

use crate::imports;
use crate::lexer::Token;
use std::collections::BTreeMap;

/// A path as it stands in the text, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// From a package's name (`std`, `env`, `steadfast`) on; what is inside the file's own package starts with `crate`.
    pub segments: Vec<String>,
    pub form: Form,
    pub line: usize,
    pub column: usize,
    /// Index of the first token after it.
    pub after: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Use,
    /// `use path::*`.
    Glob,
    Plain,
    /// `path!`.
    Macro,
}

impl NamedPath {
    pub fn text(&self) -> String {
        let star = if self.form == Form::Glob { "::*" } else { "" };
        format!("{}{star}", self.segments.join("::"))
    }
}

pub fn paths(file: &str, tokens: &[Token]) -> Vec<NamedPath> {
    let mut scan = Scan { tokens, module: imports::module_path(file), open: Vec::new(), depth: 0, found: Vec::new() };
    scan.run();
    resolve(scan.found)
}

/// A path before renames are undone, and the name that a `use` of it brings in.
struct Found {
    path: NamedPath,
    alias: Option<String>,
}

/// Those that a path may follow at once: `return ::std::fs::read(..)`.
const KEYWORDS: &[&str] = &[
    "as", "break", "const", "dyn", "else", "for", "if", "impl", "in", "match", "move", "mut", "return", "unsafe",
    "where", "while",
];

struct Scan<'a> {
    tokens: &'a [Token<'a>],
    /// The module that the scan is in, from the package's root.
    module: Vec<String>,
    /// The brace depths at which `mod name {` opened.
    open: Vec<usize>,
    depth: usize,
    found: Vec<Found>,
}

impl Scan<'_> {
    fn run(&mut self) {
        let mut at = 0;
        while at < self.tokens.len() {
            at = self.step(at);
        }
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    fn ident(&self, at: usize) -> Option<&str> {
        self.tokens.get(at).filter(|token| token.is_ident()).map(|token| token.text)
    }

    fn step(&mut self, at: usize) -> usize {
        match self.tokens[at].text {
            "{" => self.depth += 1,
            "}" => self.close(),
            // `use<'a>` captures lifetimes and imports nothing.
            "use" if !self.is(at + 1, "<") => return self.use_tree(at + 1, &[]),
            "extern" if self.is(at + 1, "crate") => return self.extern_crate(at + 2),
            "mod" if self.is(at + 2, "{") => {
                self.depth += 1;
                self.open.push(self.depth);
                self.module.push(self.tokens[at + 1].text.to_owned());
                return at + 3;
            }
            _ if self.ident(at).is_some() => return self.plain(at),
            _ => {}
        }
        at + 1
    }

    fn close(&mut self) {
        if self.open.last() == Some(&self.depth) {
            self.open.pop();
            self.module.pop();
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn extern_crate(&mut self, at: usize) -> usize {
        let Some(name) = self.ident(at).map(str::to_owned) else { return at };
        self.leaf(vec![name], at, at + 1, Form::Use)
    }

    /// One branch of a `use` below `prefix`; returns the index behind it.
    fn use_tree(&mut self, mut at: usize, prefix: &[String]) -> usize {
        let start = at;
        let mut segments = prefix.to_vec();
        loop {
            if self.is(at, "::") {
                at += 1;
            } else if self.is(at, "{") {
                return self.use_group(at + 1, &segments);
            } else if self.is(at, "*") {
                return self.leaf(segments, start, at + 1, Form::Glob);
            } else if let Some(name) = self.ident(at).filter(|&name| name != "as") {
                // `use a::{self}` is `use a`.
                if name != "self" || segments.is_empty() {
                    segments.push(name.to_owned());
                }
                at += 1;
            } else {
                return self.leaf(segments, start, at, Form::Use);
            }
        }
    }

    fn use_group(&mut self, mut at: usize, prefix: &[String]) -> usize {
        while at < self.tokens.len() && !self.is(at, "}") {
            at = if self.is(at, ",") { at + 1 } else { self.use_tree(at, prefix).max(at + 1) };
        }
        at + 1
    }

    /// Notes the path of a `use` that ends before `after`, and its ` as name`.
    fn leaf(&mut self, segments: Vec<String>, start: usize, after: usize, form: Form) -> usize {
        let renamed = self.is(after, "as");
        let alias = if renamed { self.ident(after + 1).map(str::to_owned) } else { segments.last().cloned() };
        self.note(segments, start, after, form, alias.filter(|_| form == Form::Use));
        if renamed { after + 2 } else { after }
    }

    fn plain(&mut self, start: usize) -> usize {
        let mut at = start + 1;
        if KEYWORDS.contains(&self.tokens[start].text) {
            return at;
        }
        while self.is(at, "::") && self.ident(at + 1).is_some() {
            at += 2;
        }
        let continues = start > 0 && self.continues(start - 1);
        let form = if self.is(at, "!") && !self.is(at + 1, "=") { Form::Macro } else { Form::Plain };
        if !continues && (at > start + 1 || form == Form::Macro) {
            let segments = (start..at).step_by(2).map(|at| self.tokens[at].text.to_owned()).collect();
            self.note(segments, start, at, form, None);
        }
        at
    }

    /// Whether what follows the token at `before` belongs to something already begun: a field, a method, `<T>::name`.
    fn continues(&self, before: usize) -> bool {
        let behind = |text| before > 0 && self.is(before - 1, text);
        self.is(before, ".") && !behind(".") || self.is(before, "::") && behind(">")
    }

    fn note(&mut self, segments: Vec<String>, start: usize, after: usize, form: Form, alias: Option<String>) {
        let Some(token) = self.tokens.get(start) else { return };
        let (line, column) = (token.line, token.column);
        let segments = inside_package(&self.module, segments);
        self.found.push(Found { path: NamedPath { segments, form, line, column, after }, alias });
    }
}

/// Turns `self::` and `super::` into `crate::`.
fn inside_package(module: &[String], segments: Vec<String>) -> Vec<String> {
    let ups = segments.iter().take_while(|name| *name == "self" || *name == "super").count();
    if ups == 0 {
        return segments;
    }
    let supers = segments[..ups].iter().filter(|name| *name == "super").count();
    let above = &module[..module.len().saturating_sub(supers)];
    std::iter::once("crate")
        .chain(above.iter().map(String::as_str))
        .map(str::to_owned)
        .chain(segments[ups..].to_vec())
        .collect()
}

fn resolve(found: Vec<Found>) -> Vec<NamedPath> {
    let mut renames: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for Found { path, alias } in &found {
        if let Some(alias) = alias
            && path.segments != [alias.as_str()]
        {
            renames.entry(alias.clone()).or_default().push(path.segments.clone());
        }
    }
    found.into_iter().flat_map(|found| expand(found.path, &renames)).collect()
}

/// All that `path` may mean. A rename may go through others, a few deep.
fn expand(path: NamedPath, renames: &BTreeMap<String, Vec<Vec<String>>>) -> Vec<NamedPath> {
    const DEPTH_MAX: usize = 4;
    let mut meanings = vec![path.segments.clone()];
    for _ in 0..DEPTH_MAX {
        let mut changed = false;
        let mut next: Vec<Vec<String>> = Vec::new();
        for segments in meanings {
            match renames.get(&segments[0]).filter(|targets| targets.iter().all(|target| target[0] != segments[0])) {
                Some(targets) => {
                    changed = true;
                    next.extend(targets.iter().map(|target| [target, &segments[1..]].concat()));
                }
                None => next.push(segments),
            }
        }
        next.sort();
        next.dedup();
        meanings = next;
        if !changed {
            break;
        }
    }
    meanings.into_iter().map(|segments| NamedPath { segments, ..path.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer;

    fn named(file: &str, text: &str) -> Vec<String> {
        paths(file, &lexer::tokens(text)).iter().map(NamedPath::text).collect()
    }

    #[test]
    fn groups_are_taken_apart() {
        assert_eq!(named("src/lib.rs", "use std::{fs, io::{self, Read}};"), ["std::fs", "std::io", "std::io::Read"]);
        assert_eq!(named("src/lib.rs", "pub use a::{b::*, c as d,};"), ["a::b::*", "a::c"]);
        assert_eq!(named("src/lib.rs", "use ::std::fs as files;"), ["std::fs"]);
    }

    #[test]
    fn renames_are_undone() {
        assert_eq!(named("src/lib.rs", "use std as s; fn f() { s::fs::read(1) }")[1], "std::fs::read");
        assert_eq!(named("src/lib.rs", "extern crate std as s; s::fs::read(1)")[1], "std::fs::read");
        assert_eq!(
            named("src/lib.rs", "use std as s; use s::time as t; t::Instant::now()")[2],
            "std::time::Instant::now"
        );
        assert_eq!(named("src/lib.rs", "use tokio::select; select! {}")[1], "tokio::select");
        assert_eq!(named("src/lib.rs", "use std::env; env::args()")[1], "std::env::args");
    }

    #[test]
    fn a_path_is_read_from_its_head() {
        assert_eq!(
            named("src/lib.rs", "x.std::y; <A as b::C>::d::e; return ::std::fs::read(1); a..b::c"),
            ["b::C", "std::fs::read", "b::c"]
        );
        assert_eq!(named("src/lib.rs", "fn f() -> impl A + use<'a> {}"), Vec::<String>::new());
    }

    #[test]
    fn super_climbs_to_the_package() {
        assert_eq!(named("src/region/key.rs", "use super::config::X;"), ["crate::region::config::X"]);
        assert_eq!(named("src/region/key.rs", "use super::super::node::X;"), ["crate::node::X"]);
        assert_eq!(
            named("src/region/mod.rs", "mod tests { use super::super::node::X; } use super::node::Y;"),
            ["crate::node::X", "crate::node::Y"]
        );
    }
}
