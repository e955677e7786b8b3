//! Imports go down only. This page is the table; README.md's reading order follows it.

use crate::Finding;
use crate::path::NamedPath;

/// A workspace package: its folder, the packages it may import, and those it may import in tests besides.
pub struct Package {
    pub name: &'static str,
    /// Where its root file lies.
    folder: &'static str,
    pub imports: &'static [&'static str],
    pub test_imports: &'static [&'static str],
}

#[rustfmt::skip]
pub const PACKAGES: &[Package] = &[
    Package { name: "env",       folder: "src/env/",      imports: &[],                                      test_imports: &[] },
    Package { name: "model",     folder: "model/src/",    imports: &[],                                      test_imports: &[] },
    Package { name: "storage",   folder: "src/storage/",  imports: &["env"],                                 test_imports: &["model"] },
    Package { name: "embedded",  folder: "src/embedded/", imports: &["env", "storage"],                      test_imports: &["model"] },
    Package { name: "steadfast", folder: "src/",          imports: &["env", "storage", "embedded"],          test_imports: &["model"] },
    Package { name: "sim",       folder: "sim/src/",      imports: &["env", "model", "storage", "steadfast"], test_imports: &[] },
    Package { name: "benches",   folder: "benches/src/",  imports: &["env", "storage", "embedded", "steadfast"], test_imports: &[] },
    Package { name: "jepsen",    folder: "jepsen/src/",   imports: &["env", "model", "steadfast"],           test_imports: &[] },
    Package { name: "tidy",      folder: "ci/tidy/src/",  imports: &[],                                      test_imports: &[] },
];

/// A top-level module of `steadfast`, and the modules it may import. lib.rs and main.rs stand above them all.
#[rustfmt::skip]
const MODULES: &[(&str, &[&str])] = &[
    ("limits",      &[]),
    ("region",      &["limits"]),
    ("types",       &["limits", "region"]),
    ("protocol",    &["limits", "region", "types"]),
    ("txn",         &["limits", "region", "types", "protocol"]),
    ("replication", &["limits", "region", "protocol"]),
    ("master",      &["limits", "region", "protocol"]),
    ("frontend",    &["limits", "region", "types", "protocol", "txn"]),
    ("node",        &["limits", "region", "types", "protocol", "txn", "replication", "master", "frontend"]),
    ("client",      &["limits", "region", "types", "protocol"]),
    ("bench",       &["limits", "region", "types", "protocol", "client"]),
    ("shell",       &["limits", "region", "types", "protocol", "frontend", "node", "client", "bench"]),
];

/// A library that stays behind one of our modules: its name, or a beginning that ends in `_`, and where it may be named.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("openraft", &["src/master/raft"]),
    ("openraft_", &["src/master/raft"]),
    ("turmoil", &["src/env/sim", "sim/"]),
    ("madsim", &["src/env/sim", "sim/"]),
    ("getrandom", &["src/env/real"]),
    ("rand", &["src/master/raft/runtime.rs", "benches/", "jepsen/"]),
    ("io_uring", &["src/env/real"]),
    ("rustix", &["src/env/real", "src/env/tests", "jepsen/"]),
    ("socket2", &["src/env/real"]),
    ("libc", &["src/env/real", "jepsen/"]),
];

/// The package whose source `file` is; none for tests/ and examples/ beside a src/.
fn package_of(file: &str) -> Option<&'static Package> {
    PACKAGES.iter().filter(|package| file.starts_with(package.folder)).max_by_key(|package| package.folder.len())
}

/// The module that `file` is, from its package's root.
pub fn module_path(file: &str) -> Vec<String> {
    let Some(package) = package_of(file) else { return Vec::new() };
    let inside = file[package.folder.len()..].trim_end_matches(".rs");
    let mut names: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| name == "mod") || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    names
}

pub fn check(file: &str, paths: &[NamedPath]) -> Vec<Finding> {
    let package = package_of(file);
    let module =
        package.filter(|package| package.name == "steadfast").and_then(|_| module_path(file).into_iter().next());
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(module) = &module
        && !MODULES.iter().any(|(name, _)| name == module)
    {
        let message = format!("module `{module}` is not in the table of ci/tidy/src/imports.rs");
        findings.push(Finding { file: file.to_owned(), line: 0, column: 0, message });
    }
    for path in paths {
        let message = package
            .and_then(|package| foreign_package(package, path))
            .or_else(|| module.as_ref().and_then(|module| foreign_module(module, path)))
            .or_else(|| foreign_library(file, path));
        if let Some(message) = message {
            findings.push(Finding { file: file.to_owned(), line: path.line, column: path.column, message });
        }
    }
    findings
}

fn foreign_package(package: &Package, path: &NamedPath) -> Option<String> {
    let name = path.segments[0].as_str();
    // `env!(..)` is a macro of the standard library.
    let ours = PACKAGES.iter().any(|package| package.name == name) && path.segments.len() > 1;
    let allowed = name == package.name || package.imports.contains(&name) || package.test_imports.contains(&name);
    (ours && !allowed).then(|| format!("`{}`: package {} does not import {name}", path.text(), package.name))
}

fn foreign_module(module: &str, path: &NamedPath) -> Option<String> {
    let [head, top, ..] = path.segments.as_slice() else {
        return (path.segments == ["crate"]).then(|| format!("`{}`: the root stands above {module}", path.text()));
    };
    let (_, imports) = MODULES.iter().find(|(name, _)| *name == module)?;
    let allowed = top == module || imports.contains(&top.as_str());
    (head == "crate" && !allowed).then(|| format!("`{}`: {module} does not import {top}", path.text()))
}

fn foreign_library(file: &str, path: &NamedPath) -> Option<String> {
    let name = path.segments[0].as_str();
    let matches = |library: &str| name == library || library.ends_with('_') && name.starts_with(library);
    let (_, places) = LIBRARIES.iter().find(|(library, _)| matches(library))?;
    let allowed = places.iter().any(|place| file.starts_with(place));
    (!allowed).then(|| format!("`{}`: {name} is named only in {}", path.text(), places.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lexer, path};

    fn messages(file: &str, text: &str) -> Vec<String> {
        check(file, &path::paths(file, &lexer::tokens(text))).into_iter().map(|finding| finding.message).collect()
    }

    fn fails(file: &str, text: &str, with: &str) {
        let found = messages(file, text);
        assert!(found.iter().any(|message| message.contains(with)), "{file}: {text} gave {found:?}, not {with}");
    }

    fn passes(file: &str, text: &str) {
        assert_eq!(messages(file, text), Vec::<String>::new(), "{file}: {text}");
    }

    /// Each row names only rows above it, so nothing imports in a circle (`jepsen` and `tidy` are leaves).
    #[test]
    fn the_tables_go_down() {
        for (at, package) in PACKAGES.iter().enumerate() {
            for import in package.imports.iter().chain(package.test_imports) {
                assert!(PACKAGES[..at].iter().any(|above| above.name == *import), "{} imports {import}", package.name);
            }
        }
        for (at, (name, imports)) in MODULES.iter().enumerate() {
            for import in *imports {
                assert!(MODULES[..at].iter().any(|(above, _)| above == import), "{name} imports {import}");
            }
        }
    }

    #[test]
    fn upward_imports_of_modules_fail() {
        fails("src/region/key.rs", "use crate::node::Node;", "region does not import node");
        fails(
            "src/protocol/codec.rs",
            "use crate::{region::X, replication::Y};",
            "protocol does not import replication",
        );
        fails(
            "src/replication/primary.rs",
            "fn f() { crate::frontend::run() }",
            "replication does not import frontend",
        );
        fails("src/node/mod.rs", "use super::client::Client;", "node does not import client");
        fails("src/region/mod.rs", "use crate::node as n; fn f() { n::run() }", "region does not import node");
        fails("src/region/mod.rs", "use crate::*;", "the root stands above region");
        fails("src/region/mod.rs", "use crate::open;", "region does not import open");
        fails("src/gossip.rs", "", "not in the table");
    }

    #[test]
    fn upward_imports_of_packages_fail() {
        fails("src/env/lib.rs", "use storage::Log;", "env does not import storage");
        fails("model/src/lib.rs", "use env::Env;", "model does not import env");
        fails("src/storage/log.rs", "use steadfast::region::X;", "storage does not import steadfast");
        fails("src/node/mod.rs", "use sim::Plan;", "steadfast does not import sim");
    }

    #[test]
    fn libraries_stay_behind_their_module() {
        fails("src/node/mod.rs", "use openraft::Raft;", "openraft is named only in src/master/raft");
        fails("src/master/state.rs", "use openraft_rt::X;", "openraft_rt is named only in src/master/raft");
        fails("src/storage/log.rs", "fn f() { turmoil::Builder::new() }", "turmoil is named only in");
        fails("src/region/mod.rs", "fn f() { rustix::fs::sync() }", "rustix is named only in");
        passes("src/master/raft/log.rs", "use openraft::Raft;");
        passes("sim/src/cluster.rs", "use turmoil::Sim;");
    }

    #[test]
    fn downward_imports_pass() {
        passes("src/main.rs", "use steadfast::node::Node; use env::real;");
        passes("src/lib.rs", "pub mod node; pub use node::Node; use crate::client::Client;");
        passes("src/node/mod.rs", "use crate::{master::M, replication::R}; use storage::Log; use self::router::X;");
        passes("src/node/server.rs", "use crate::frontend::native; use super::super::master::Master;");
        passes("model/src/lib.rs", "use std::env; fn f() { env::args(); }");
        passes("sim/src/cluster.rs", "use {env::sim, model::map, steadfast::node, storage::Log};");
    }
}
