//! Cargo.toml: versions are written once, in the workspace; the shared lints are on; imports follow the table; and a
//! production build never links the simulator or the planted bugs.
//!
//! Reads the one-line form of TOML that our manifests use: a dependency is one line.

use crate::Finding;
use crate::imports::{PACKAGES, Package};

/// Packages without the shared lints: they are a door to the world, and say so in their root file.
const WITHOUT_LINTS: &[&str] = &["env", "tidy"];

/// Features that only these packages turn on, or any package for its own tests.
const TEST_FEATURES: &[&str] = &["sim", "mutants"];
const TEST_PACKAGES: &[&str] = &["sim", "benches", "jepsen"];

pub fn check(file: &str, text: &str) -> Vec<Finding> {
    let at = |line, message| Finding { file: file.to_owned(), line, column: if line == 0 { 0 } else { 1 }, message };
    let mut findings = Vec::new();
    let package = package_name(text);
    let (mut section, mut has_lints) = ("", false);
    for (index, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        has_lints |= section == "lints" && line == "workspace = true";
        if let Some(kind) = dependency_kind(section)
            && let Some(message) = dependency(package, kind, section, line)
        {
            findings.push(at(index + 1, message));
        }
    }
    let needs_lints = package.is_some_and(|package| !WITHOUT_LINTS.contains(&package));
    if needs_lints && !has_lints {
        findings.push(at(0, "wants `[lints] workspace = true`".into()));
    }
    findings
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Test,
}

fn package_name(text: &str) -> Option<&str> {
    let (_, package) = text.split_once("[package]\n")?;
    let name =
        package.lines().take_while(|line| !line.starts_with('[')).find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim().trim_matches('"'))
}

/// Also `target.'cfg(unix)'.dependencies` and `dependencies.name`; not the workspace's own list.
fn dependency_kind(section: &str) -> Option<Kind> {
    if section.starts_with("workspace.") {
        return None;
    }
    let has = |part: &str| {
        section == part || section.ends_with(&format!(".{part}")) || section.starts_with(&format!("{part}."))
    };
    if has("dev-dependencies") {
        return Some(Kind::Test);
    }
    (has("dependencies") || has("build-dependencies")).then_some(Kind::Normal)
}

fn dependency(package: Option<&str>, kind: Kind, section: &str, line: &str) -> Option<String> {
    if line.starts_with('[') {
        let own_section = section.rsplit_once("dependencies.").map(|(_, name)| name);
        return own_section.map(|name| format!("`{name}`: write it in one line under its list"));
    }
    let (key, value) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))?;
    let name = key.trim_end_matches(".workspace");
    let shared = key.ends_with(".workspace") && value == "true" || value.contains("workspace = true");
    if !shared {
        return Some(format!("`{name}`: write its version in the root's [workspace.dependencies]"));
    }
    let package = PACKAGES.iter().find(|known| Some(known.name) == package)?;
    foreign(package, kind, name).or_else(|| test_feature(package, kind, name, value))
}

fn foreign(package: &Package, kind: Kind, name: &str) -> Option<String> {
    let ours = PACKAGES.iter().any(|known| known.name == name);
    let in_tests = kind == Kind::Test && (package.test_imports.contains(&name) || name == package.name);
    let allowed = package.imports.contains(&name) || in_tests;
    (ours && !allowed).then(|| format!("`{name}`: package {} does not import it", package.name))
}

fn test_feature(package: &Package, kind: Kind, name: &str, value: &str) -> Option<String> {
    let (_, features) = value.split_once("features = [")?;
    let feature = TEST_FEATURES.iter().find(|feature| features.contains(&format!("\"{feature}\"")))?;
    let ours = PACKAGES.iter().any(|known| known.name == name);
    let allowed = !ours || kind == Kind::Test || TEST_PACKAGES.contains(&package.name);
    (!allowed).then(|| format!("`{name}`: feature \"{feature}\" is for tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check("x/Cargo.toml", text).into_iter().map(|finding| finding.message).collect()
    }

    fn fails(section: &str, line: &str, with: &str) {
        let found =
            messages(&format!("[package]\nname = \"storage\"\n\n{section}\n{line}\n\n[lints]\nworkspace = true\n"));
        assert!(found.iter().any(|message| message.contains(with)), "{section} {line} gave {found:?}, not {with}");
    }

    #[test]
    fn versions_outside_the_workspace_fail() {
        for section in
            ["[dependencies]", "[dev-dependencies]", "[build-dependencies]", "[target.'cfg(unix)'.dependencies]"]
        {
            fails(section, "bytes = \"1\"", "[workspace.dependencies]");
            fails(section, "bytes = { version = \"1\", features = [\"serde\"] }", "[workspace.dependencies]");
            fails(section, "bytes = { path = \"../bytes\" }", "[workspace.dependencies]");
        }
        fails("[dependencies.bytes]", "workspace = true", "in one line");
    }

    #[test]
    fn upward_dependencies_fail() {
        fails("[dependencies]", "steadfast.workspace = true", "storage does not import");
        fails("[dependencies]", "model.workspace = true", "storage does not import");
        fails("[dev-dependencies]", "sim.workspace = true", "storage does not import");
    }

    #[test]
    fn the_simulator_in_production_fails() {
        fails("[dependencies]", "env = { workspace = true, features = [\"sim\"] }", "is for tests");
        fails("[dependencies]", "env = { workspace = true, features = [\"a\", \"mutants\"] }", "is for tests");
    }

    #[test]
    fn missing_lints_fail() {
        assert_eq!(messages("[package]\nname = \"model\"\n"), ["wants `[lints] workspace = true`"]);
        assert_eq!(messages("[package]\nname = \"env\"\n"), Vec::<String>::new());
    }

    #[test]
    fn a_manifest_in_order_passes() {
        let text = "
[workspace.dependencies]
bytes = { version = \"1\" }

[package]
name = \"storage\"

[dependencies]
# Why.
bytes.workspace = true
env = { workspace = true }

[dev-dependencies]
env = { workspace = true, features = [\"sim\"] }
model.workspace = true

[features]
mutants = [\"env/mutants\"]

[lints]
workspace = true
";
        assert_eq!(messages(text), Vec::<String>::new());
    }
}
