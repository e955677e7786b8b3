//! Nothing outside src/env meets the world, names a random order, or lets a `select!` pick at random.

use crate::Finding;
use crate::lexer::Token;
use crate::path::{Form, NamedPath};

/// Paths that stay below, with what to use instead. A row covers everything under its path.
const DENIED: &[(&str, &str)] = &[
    ("std::fs", "use env.disk()"),
    ("std::net", "use env.net(); an address is text, `host:port`"),
    ("std::os", "use env"),
    ("std::thread", "use env.spawn() or env.blocking()"),
    ("std::process::Command", "nodes start no processes"),
    ("std::process::id", "it differs between runs of one seed"),
    ("std::time::Instant", "use env::Instant, from env.now()"),
    ("std::time::SystemTime", "use env.clock().wall_ms()"),
    ("std::time::UNIX_EPOCH", "use env.clock().wall_ms()"),
    ("std::collections::HashMap", "its order is random: use env::HashMap, or a BTreeMap"),
    ("std::collections::HashSet", "its order is random: use env::HashSet, or a BTreeSet"),
    ("std::collections::hash_map::HashMap", "its order is random: use env::HashMap, or a BTreeMap"),
    ("std::collections::hash_set::HashSet", "its order is random: use env::HashSet, or a BTreeSet"),
    ("std::collections::hash_map::RandomState", "its seed is random: use env::HashMap"),
    ("std::hash::RandomState", "its seed is random: use env::HashMap"),
    ("tokio::fs", "use env.disk()"),
    ("tokio::net", "use env.net()"),
    ("tokio::process", "nodes start no processes"),
    ("tokio::runtime", "use env::real"),
    ("tokio::signal", "use env::real"),
    ("tokio::spawn", "use env.spawn()"),
    ("tokio::sync::watch", "its wake order is random: use env::watch"),
    ("tokio::task::JoinHandle", "use env.spawn(), which gives an env::Task"),
    ("tokio::task::JoinSet", "use env.spawn() and keep the env::Task values"),
    ("tokio::task::LocalSet", "use env.spawn()"),
    ("tokio::task::block_in_place", "use env.blocking()"),
    ("tokio::task::spawn", "use env.spawn()"),
    ("tokio::task::spawn_blocking", "use env.blocking()"),
    ("tokio::task::spawn_local", "use env.spawn()"),
    ("tokio::time", "use env.sleep(), env.timeout() or env.now()"),
    ("futures::select", "its choice is random: use tokio::select! with `biased;`"),
    ("futures_util::select", "its choice is random: use tokio::select! with `biased;`"),
    ("fastrand", "use env.random()"),
    ("getrandom", "use env.random()"),
    ("rand::random", "use env.random()"),
    ("rand::rng", "use env.random()"),
    ("rand::rngs", "use env.random()"),
    ("rand::thread_rng", "use env.random()"),
];

/// Names that are never right here, wherever they come from (a macro, a re-export).
const DENIED_NAMES: &[(&str, &str)] = &[
    ("RandomState", "its seed is random: use env::HashMap"),
    ("SystemTime", "use env.clock().wall_ms()"),
    ("ThreadRng", "use env.random()"),
    ("thread_rng", "use env.random()"),
];

/// Where the rule does not hold, and why. Anywhere else an `allow` of clippy's denylist is a finding too.
const DOORS: &[(&str, &str)] = &[
    ("src/env/", "the door itself"),
    ("ci/", "checks files"),
    ("jepsen/", "drives real processes from outside"),
    ("benches/", "measures real time, and peers that know no Env"),
    ("src/embedded/tests/files.rs", "damages files, and uses threads, as a user's program does"),
    ("tests/cli/", "runs the program as its users do"),
    ("sim/tests/", "runs the simulator as its users do"),
    ("src/shell/dev/processes.rs", "starts each node of a trial cluster as a process"),
    ("sim/src/main.rs", "stands outside of every run: reads plans, spreads seeds over threads, reports its speed"),
];

pub fn check(file: &str, tokens: &[Token], paths: &[NamedPath]) -> Vec<Finding> {
    if DOORS.iter().any(|(door, _)| file.starts_with(door)) {
        return Vec::new();
    }
    let mut findings = Findings { file, found: Vec::new() };
    for path in paths {
        denied_path(path, &mut findings);
        random_select(path, tokens, &mut findings);
    }
    for (at, token) in tokens.iter().enumerate() {
        // Whoever answers a trait's method of that name, from an Env, names nothing of the world.
        let is_defined = at > 0 && tokens[at - 1].is("fn");
        if !is_defined {
            denied_name(token, &tokens[at + 1..], &mut findings);
        }
    }
    findings.found
}

struct Findings<'a> {
    file: &'a str,
    found: Vec<Finding>,
}

impl Findings<'_> {
    /// One finding a line is enough: the same line often breaks several rows.
    fn add(&mut self, line: usize, column: usize, message: String) {
        if !self.found.iter().any(|finding| finding.line == line) {
            self.found.push(Finding { file: self.file.to_owned(), line, column, message });
        }
    }
}

fn denied_path(path: &NamedPath, findings: &mut Findings) {
    let text = path.segments.join("::");
    let below = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    if let Some((_, instead)) = DENIED.iter().find(|(denied, _)| below(denied, &text)) {
        findings.add(path.line, path.column, format!("`{text}`: {instead}"));
    } else if path.form == Form::Glob
        && let Some((denied, instead)) = DENIED.iter().find(|(denied, _)| below(&text, denied))
    {
        findings.add(
            path.line,
            path.column,
            format!("`{text}::*` brings in `{denied}`: {instead}; name what you need"),
        );
    }
}

/// `select!` begins with `biased;`, or its branches are tried in a random order.
fn random_select(path: &NamedPath, tokens: &[Token], findings: &mut Findings) {
    let is_select = path.form == Form::Macro && path.segments.last().is_some_and(|name| name == "select");
    let word = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    // After the path: `!`, the opening bracket, the first word.
    let biased = word(path.after + 2, "biased") && word(path.after + 3, ";");
    if is_select && !biased {
        findings.add(path.line, path.column, "`select!` picks at random: begin it with `biased;`".into());
    }
}

fn denied_name(token: &Token, rest: &[Token], findings: &mut Findings) {
    let next = |text: &[&str]| rest.len() >= text.len() && text.iter().zip(rest).all(|(text, token)| token.is(text));
    if let Some((name, instead)) = DENIED_NAMES.iter().find(|(name, _)| token.is_ident() && token.is(name)) {
        findings.add(token.line, token.column, format!("`{name}`: {instead}"));
    }
    if token.is("Instant") && next(&["::", "now"]) {
        findings.add(token.line, token.column, "`Instant::now`: use env.now()".into());
    }
    if token.is("clippy") && (next(&["::", "disallowed_types"]) || next(&["::", "disallowed_methods"])) {
        findings.add(
            token.line,
            token.column,
            "clippy's denylist holds here: the doors are listed in ci/tidy/src/seam.rs".into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lexer, path};

    fn messages(file: &str, text: &str) -> Vec<String> {
        let tokens = lexer::tokens(text);
        check(file, &tokens, &path::paths(file, &tokens)).into_iter().map(|finding| finding.message).collect()
    }

    fn fails(text: &str, with: &str) {
        let found = messages("src/region/mod.rs", text);
        assert!(found.iter().any(|message| message.contains(with)), "{text} gave {found:?}, not {with}");
    }

    #[test]
    fn every_row_fails_as_a_use_and_as_a_path() {
        for (denied, instead) in DENIED {
            fails(&format!("use {denied};"), instead);
            fails(&format!("fn f() {{ {denied}::x(1) }}"), instead);
        }
        for (name, instead) in DENIED_NAMES {
            fails(&format!("fn f(x: {name}) {{}}"), instead);
        }
    }

    #[test]
    fn the_world_fails_in_every_disguise() {
        fails("use std::{fs, io};", "env.disk()");
        fails("use tokio::{net::TcpStream, io};", "env.net()");
        fails("use std as s; fn f() { s::fs::read(1) }", "env.disk()");
        fails("use std::time::{self, Duration}; fn f() { time::Instant::now() }", "env.now()");
        fails("use std::time::*;", "name what you need");
        fails("use tokio::*;", "name what you need");
        fails("fn f() { Instant::now() }", "env.now()");
        fails("fn f() { ::std::net::TcpStream::connect(1) }", "env.net()");
        fails("macro_rules! m { () => { std::thread::spawn(f) } }", "env.spawn()");
        fails("fn f() { let m: std::collections::HashMap<u8, u8> = Default::default(); }", "env::HashMap");
        fails("use std::collections::{BTreeMap, HashMap as Map};", "env::HashMap");
        fails("#[allow(clippy::disallowed_methods)] fn f() {}", "the doors are listed");
    }

    #[test]
    fn select_without_biased_fails() {
        fails("async fn f() { tokio::select! { a = x => {} } }", "biased");
        fails("use tokio::select; async fn f() { select! { a = x => {} } }", "biased");
        fails("async fn f() { futures::select! { biased; a = x => {} } }", "random");
        assert!(messages("src/region/mod.rs", "async fn f() { tokio::select! { biased; a = x => {} } }").is_empty());
    }

    #[test]
    fn what_is_allowed_passes() {
        let text = "
            //! Not `std::fs`, nor std::net::TcpStream.
            use std::collections::{BTreeMap, hash_map::Entry};
            use std::time::Duration;
            use env::{HashMap, Instant};
            use tokio::sync::{Notify, mpsc, oneshot};
            impl Runtime for R { fn thread_rng() -> EnvRng { EnvRng(Env::current()) } }
            fn f(env: &env::Env) -> Instant { log(\"std::fs\"); env.now() }
        ";
        assert_eq!(messages("src/region/mod.rs", text), Vec::<String>::new());
    }

    #[test]
    fn the_doors_are_open() {
        for (door, _) in DOORS {
            let file = if door.ends_with('/') { format!("{door}x.rs") } else { door.to_string() };
            assert_eq!(messages(&file, "use std::fs;"), Vec::<String>::new());
        }
    }
}
