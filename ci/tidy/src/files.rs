//! The files themselves: known names at the top, bearable lengths, no traces of the machine they were written on.

use crate::Finding;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// What may lie at the top, besides dotfiles.
const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "ci",
    "clippy.toml",
    "jepsen",
    "model",
    "sim",
    "src",
    "tests",
];

const LINES_MAX: usize = 1_500;

/// First names of absolute paths that exist on somebody's machine only.
const MACHINE_FOLDERS: &[&str] = &["home", "Users", "root", "work", "tmp/wt", "tmp/target"];

/// Where Cargo.lock says that packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Host names and settings by which a package registry is reached, in halves, so that this file passes.
const REGISTRY_TRACES: &[[&str; 2]] = &[
    ["index.", "crates.io"],
    ["static.", "crates.io"],
    ["artifac", "tory"],
    ["sparse+", "http"],
    ["replace-", "with"],
];

/// All files below `root` that git would keep, sorted, as path (with `/`) and text. Other than UTF-8 is replaced.
pub fn read_tree(root: &Path) -> io::Result<Vec<(String, String)>> {
    let ignored = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let mut tree = Vec::new();
    walk(root, "", &ignored, &mut tree)?;
    tree.sort();
    Ok(tree)
}

fn walk(root: &Path, folder: &str, ignored: &str, tree: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = format!("{folder}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if path == ".git" || is_ignored(&path, ignored) {
            continue;
        }
        if kind.is_dir() {
            walk(root, &format!("{path}/"), ignored, tree)?;
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path())?;
            tree.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(())
}

/// Knows the forms that our .gitignore has: `/name` and `/name-*`.
fn is_ignored(path: &str, ignored: &str) -> bool {
    ignored.lines().filter_map(|line| line.strip_prefix('/')).any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    })
}

pub fn check_names<'a>(files: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let tops: BTreeSet<&str> = files.map(|file| file.split('/').next().expect("split gives one")).collect();
    let unknown = tops.into_iter().filter(|top| !top.starts_with('.') && !TOP_LEVEL.contains(top));
    unknown.map(|top| finding(top, 0, 0, "not a known name at the top of the repository".into())).collect()
}

pub fn check_text(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if file.ends_with(".rs") && lines > LINES_MAX {
        findings.push(finding(file, 0, 0, format!("{lines} lines, more than {LINES_MAX}: split it")));
    }
    for (index, line) in text.lines().enumerate() {
        if let Some((at, message)) = trace(file, line) {
            findings.push(finding(file, index + 1, line[..at].chars().count() + 1, message));
        }
    }
    findings
}

fn finding(file: &str, line: usize, column: usize, message: String) -> Finding {
    Finding { file: file.to_owned(), line, column, message }
}

/// What in `line` tells of the machine it was written on, and where.
fn trace(file: &str, line: &str) -> Option<(usize, String)> {
    machine_path(line).or_else(|| registry(line)).or_else(|| foreign_source(file, line))
}

fn machine_path(line: &str) -> Option<(usize, String)> {
    MACHINE_FOLDERS.iter().find_map(|folder| {
        let path = format!("/{folder}/");
        let starts =
            |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-*})]>/".contains(before));
        let (at, _) = line.match_indices(&path).find(|&(at, _)| starts(at))?;
        Some((at, format!("`{path}` is a path of one machine")))
    })
}

fn registry(line: &str) -> Option<(usize, String)> {
    REGISTRY_TRACES.iter().find_map(|halves| {
        let name = halves.concat();
        line.find(&name).map(|at| (at, format!("`{name}`: the registry is the builder's choice, not ours")))
    })
}

fn foreign_source(file: &str, line: &str) -> Option<(usize, String)> {
    let source = line.strip_prefix("source = \"").filter(|_| file.ends_with("Cargo.lock"))?;
    (source.trim_end_matches('"') != REGISTRY).then(|| (0, format!("`{source}` is not {REGISTRY}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(file: &str, text: &str) -> Vec<String> {
        check_text(file, text).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn unknown_names_at_the_top_fail() {
        let files = ["src/lib.rs", "notes/a.md", "TODO", ".gitignore", "Cargo.toml"];
        let found: Vec<String> = check_names(files.into_iter()).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["TODO", "notes"]);
    }

    #[test]
    fn long_files_fail() {
        assert_eq!(messages("src/a.rs", &"\n".repeat(LINES_MAX)), Vec::<String>::new());
        assert_eq!(messages("src/a.rs", &"\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(messages("Cargo.lock", &"\n".repeat(LINES_MAX + 1)).len(), 0);
    }

    #[test]
    fn paths_of_a_machine_fail() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(messages("README.md", &format!("cd /{folder}/ada")).len(), 1, "{folder}");
            assert_eq!(messages("src/a.rs", &format!("open(\"/{folder}/ada\")")).len(), 1, "{folder}");
            assert_eq!(messages("src/a.rs", &format!("see docs/{folder}/ada")).len(), 0, "{folder}");
        }
    }

    #[test]
    fn registries_fail() {
        for halves in REGISTRY_TRACES {
            assert_eq!(messages(".cargo/config.toml", &format!("a = \"{}\"", halves.concat())).len(), 1);
        }
        assert_eq!(messages("Cargo.lock", "source = \"registry+https://example.org/index\"").len(), 1);
        assert_eq!(messages("Cargo.lock", "source = \"git+https://example.org/x\"").len(), 1);
        assert_eq!(messages("Cargo.lock", &format!("source = \"{REGISTRY}\"")).len(), 0);
    }

    #[test]
    fn ignored_is_what_git_ignores() {
        let ignored = "/target\n/target-*\n";
        assert!(is_ignored("target", ignored) && is_ignored("target-x", ignored));
        assert!(!is_ignored("src/target", ignored) && !is_ignored("targets", ignored));
    }
}
