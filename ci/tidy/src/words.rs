//! No `unsafe` outside src/env/real, and no code that is unfinished or switched off.

use crate::Finding;
use crate::lexer::Token;

const UNSAFE_HOME: &str = "src/env/real";

/// Macros that are there while one works.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

pub fn check(file: &str, tokens: &[Token]) -> Vec<Finding> {
    let at = |token: &Token, message: String| Finding {
        file: file.to_owned(),
        line: token.line,
        column: token.column,
        message,
    };
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let next = |offset: usize, text: &str| tokens.get(index + offset).is_some_and(|token| token.is(text));
        if token.is("unsafe") && !file.starts_with(UNSAFE_HOME) {
            findings.push(at(token, format!("`unsafe` lives in {UNSAFE_HOME}")));
        }
        if UNFINISHED.iter().any(|name| token.is(name)) && next(1, "!") && !next(2, "=") {
            findings.push(at(token, format!("`{}!` is unfinished work", token.text)));
        }
        if token.is("#") && next(1, "[") && next(2, "ignore") {
            findings.push(at(token, "`#[ignore]`: a test runs or is deleted".into()));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer;

    fn messages(file: &str, text: &str) -> Vec<String> {
        check(file, &lexer::tokens(text)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn unsafe_fails_outside_its_home() {
        assert_eq!(messages("src/storage/index.rs", "unsafe { *p }"), ["`unsafe` lives in src/env/real"]);
        assert_eq!(messages("src/env/sim/disk.rs", "unsafe impl Send for X {}"), ["`unsafe` lives in src/env/real"]);
        assert!(messages("src/env/real/ring.rs", "unsafe { *p }").is_empty());
    }

    #[test]
    fn unfinished_code_fails() {
        for text in ["todo!()", "unimplemented!(\"later\")", "dbg!(x)", "std::todo!()"] {
            assert_eq!(messages("src/node/mod.rs", text).len(), 1, "{text}");
        }
        assert_eq!(messages("src/node/mod.rs", "#[test] #[ignore = \"slow\"] fn f() {}").len(), 1);
        assert_eq!(messages("src/node/mod.rs", "#[ignore]").len(), 1);
    }

    #[test]
    fn words_in_prose_and_names_pass() {
        let text = "// todo!(), unsafe\nfn ignore() { let todo = \"dbg!(1)\"; if todo != x {} }";
        assert_eq!(messages("src/node/mod.rs", text), Vec::<String>::new());
    }
}
