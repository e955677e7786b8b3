//! How far long work has come, on standard error: a bar on a terminal, a line now and then elsewhere.

use crate::shell::output::size;
use env::{Env, Instant};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub struct Progress {
    env: Env,
    started: Instant,
    unit: &'static str,
    total: Total,
    /// Draws nothing where standard error is no terminal.
    bar: ProgressBar,
    /// When the last line was printed; `None` on a terminal.
    last_line: Option<Mutex<Instant>>,
}

/// What the end is measured by; `None` when it is not known.
#[derive(Clone, Copy, Debug)]
pub enum Total {
    Bytes(Option<u64>),
    Count(Option<u64>),
}

/// What there is to show.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub count: u64,
    pub bytes: u64,
    pub errors: u64,
    /// What is being waited for.
    pub waiting: Option<String>,
}

impl Progress {
    /// `unit` is what is counted.
    pub fn new(env: &Env, unit: &'static str, total: Total) -> Progress {
        let (Total::Bytes(end) | Total::Count(end)) = total;
        let (bar, template) = match end {
            Some(end) => (ProgressBar::new(end), "{bar:30} {percent:>3} %  {msg}  ({eta} to go)"),
            None => (ProgressBar::no_length(), "{spinner} {msg}"),
        };
        let style = ProgressStyle::with_template(template).expect("the template is one");
        let last_line = (!io::stderr().is_terminal()).then(|| Mutex::new(env.now()));
        Progress { env: env.clone(), started: env.now(), unit, total, bar: bar.with_style(style), last_line }
    }

    /// Shows `state`, unless it has just shown another.
    pub fn show(&self, state: &State) {
        self.bar.set_position(match self.total {
            Total::Bytes(_) => state.bytes,
            Total::Count(_) => state.count,
        });
        let text = self.text(state);
        if let Some(last_line) = &self.last_line {
            let mut last = last_line.lock().expect("nothing panics under this lock");
            if self.env.now().since(*last) >= LINE_INTERVAL {
                *last = self.env.now();
                self.note(&text);
            }
        }
        self.bar.set_message(text);
    }

    /// Prints a line that stays.
    pub fn note(&self, line: &str) {
        // Standard error may be closed, and nobody is left to be told.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "{line}")));
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    pub fn elapsed(&self) -> Duration {
        self.env.now().since(self.started)
    }

    /// Per second, since the beginning.
    pub fn rate(&self, number: u64) -> u64 {
        (number as f64 / self.elapsed().as_secs_f64().max(0.001)) as u64
    }

    fn text(&self, state: &State) -> String {
        let mut text = format!("{} {}  {}/s", state.count, self.unit, self.rate(state.count));
        if state.bytes > 0 {
            text += &format!("  {}", size(state.bytes));
        }
        if state.errors > 0 {
            text += &format!("  {} in error", state.errors);
        }
        if let Some(waiting) = &state.waiting {
            text += &format!("  waiting: {waiting}");
        }
        text
    }
}
