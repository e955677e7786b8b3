//! Checks what neither rustc nor clippy can say about this repository; one finding a line, exit status 1 if there is any.
//!
//! `cargo run -q -p tidy [root]` reads every file below the root that git would keep. A Rust file is cut into tokens
//! ([`lexer`], which drops comments and the insides of strings), its paths are put together and what `use` renames is
//! undone ([`path`]), and then each rule looks:
//!
//! - [`seam`]: nothing outside src/env meets the world, names a random order or lets `select!` pick at random;
//! - [`imports`]: modules and packages import downwards, as its table says;
//! - [`words`]: no `unsafe` outside src/env/real, no unfinished or switched-off code;
//! - [`manifest`]: versions are written once, lints are on, production never links the simulator;
//! - [`files`]: known top-level names, files of bearable length, no traces of somebody's machine.
//!
//! It works on tokens, not on types: a macro that builds a path from pieces gets past it. Clippy's denylist
//! (clippy.toml) knows types and stands behind it; the double run of every simulation stands behind both.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod files;
mod imports;
mod lexer;
mod manifest;
mod path;
mod seam;
mod words;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Something to mend, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    /// From 1; 0 for the file as a whole.
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            _ => write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message),
        }
    }
}

fn main() -> ExitCode {
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let tree = match files::read_tree(Path::new(&root)) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: read {root}: {error}");
            return ExitCode::from(2);
        }
    };
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing to mend", tree.len());
            ExitCode::SUCCESS
        }
        count => {
            println!("tidy: {count} to mend");
            ExitCode::FAILURE
        }
    }
}

/// Every finding in `tree`, a list of paths (relative to the root, with `/`) and their contents.
fn check(tree: &[(String, String)]) -> Vec<Finding> {
    let mut findings = files::check_names(tree.iter().map(|(file, _)| file.as_str()));
    for (file, text) in tree {
        findings.extend(check_file(file, text));
    }
    findings
}

fn check_file(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = files::check_text(file, text);
    if file.ends_with(".rs") {
        let tokens = lexer::tokens(text);
        let paths = path::paths(file, &tokens);
        findings.extend(seam::check(file, &tokens, &paths));
        findings.extend(imports::check(file, &paths));
        findings.extend(words::check(file, &tokens));
    }
    if file.ends_with("Cargo.toml") {
        findings.extend(manifest::check(file, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_show_as_file_line_column() {
        let text = "//! A module.\n\nfn size() {\n    let len = std::fs::metadata(\"a\");\n}\n";
        let shown: Vec<String> = check_file("src/region/size.rs", text).iter().map(Finding::to_string).collect();
        assert_eq!(shown, ["src/region/size.rs:4:15: `std::fs::metadata`: use env.disk()"]);
    }

    /// The repository itself is tidy; what `cargo test` alone would miss otherwise.
    #[test]
    fn this_repository_has_nothing_to_mend() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("ci/tidy has two parents");
        let tree = files::read_tree(root).expect("readable");
        assert!(tree.len() > 20, "only {} files below {}", tree.len(), root.display());
        let findings: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
