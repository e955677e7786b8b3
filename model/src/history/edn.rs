//! Histories as Jepsen, Knossos and Elle read them: a map for each call and one for each return.
//!
//! ```text
//! {:index 0, :time 10, :process 0, :type :invoke, :f :write, :value 1, :key "x", :client 4}
//! {:index 1, :time 25, :process 0, :type :ok, :f :write, :value 1, :key "x", :client 4, :version [1 7]}
//! ```
//!
//! `:key`, `:client`, `:version`, `:deleted` and `:error` are ours; the tools skip them. A put is a `:write`, a delete a
//! `:write` of nil, so that Knossos' `cas-register` covers gets, puts, deletes and swaps of one key ([`History::of_key`]).
//! Its `:fail` means "had no effect": not done, or a swap that found another value, or invalid; `:error` tells which. An
//! unknown outcome is `:info`, written at the end, and the process that had it is used no more. A process does one thing at
//! a time, so a client with several requests under way has several.
//!
//! [`Form::ListAppend`] and [`Form::RwRegister`] write each operation as a transaction of one step for Elle.
//!
//! A value that is a number's text is written as a number, other bytes as [`super::text`] does.

use super::syntax::{self, Edn};
use super::{Action, Answer, History, Operation, Outcome, ParseError, Version, text};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// How operations are put into `:f` and `:value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `:read`, `:write`, `:cas`, and our own `:increment` and `:append`. Loses nothing.
    Register,
    /// `:txn` of `[:r k [1 2]]` and `[:append k 2]`: gets, and appends of an integer's text and one space.
    ListAppend,
    /// `:txn` of `[:r k 1]` and `[:w k 1]`: gets and puts.
    RwRegister,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{operation} cannot be told in the form {form:?}")]
    NotInForm { operation: String, form: Form },
    #[error("write history")]
    Io(#[from] io::Error),
}

pub fn write(history: &History, form: Form, mut to: impl Write) -> Result<(), WriteError> {
    for (index, event) in events(history).into_iter().enumerate() {
        let line = event
            .line(index, form)
            .ok_or_else(|| WriteError::NotInForm { operation: event.operation.to_string(), form })?;
        to.write_all(line.as_bytes())?;
    }
    Ok(())
}

struct Event<'a> {
    time_ns: u64,
    process: usize,
    is_call: bool,
    operation: &'a Operation,
}

/// In the order of time, a call before a return in the same nanosecond; returns that never came last.
fn events(history: &History) -> Vec<Event<'_>> {
    let operations = history.operations();
    let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * operations.len());
    for (at, operation) in operations.iter().enumerate() {
        times.push((operation.call_ns, false, at));
        times.extend(operation.return_ns.map(|return_ns| (return_ns, true, at)));
    }
    times.sort();
    let end = times.last().map_or(0, |last| last.0);
    times.extend((0..operations.len()).filter(|at| operations[*at].return_ns.is_none()).map(|at| (end, true, at)));

    let mut processes = Processes::default();
    let mut process_of = vec![0; operations.len()];
    let mut events = Vec::with_capacity(times.len());
    for (time_ns, is_return, at) in times {
        let operation = &operations[at];
        match is_return {
            false => process_of[at] = processes.take(operation.client),
            true if operation.return_ns.is_some() => processes.give_back(operation.client, process_of[at]),
            true => {}
        }
        events.push(Event { time_ns, process: process_of[at], is_call: !is_return, operation });
    }
    events
}

/// Which process speaks for which client.
#[derive(Default)]
struct Processes {
    count: usize,
    idle: BTreeMap<u64, Vec<usize>>,
}

impl Processes {
    fn take(&mut self, client: u64) -> usize {
        self.idle.entry(client).or_default().pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    fn give_back(&mut self, client: u64, process: usize) {
        self.idle.entry(client).or_default().push(process);
    }
}

impl Event<'_> {
    fn line(&self, index: usize, form: Form) -> Option<String> {
        let Operation { client, key, action, outcome, version, .. } = self.operation;
        let (f, value) = self.f_and_value(form)?;
        let (time, process, kind) = (self.time_ns, self.process, self.kind());
        let mut line = format!(
            "{{:index {index}, :time {time}, :process {process}, :type :{kind}, :f :{f}, :value {value}, :key {}, :client {client}",
            quoted(&text::encode(key)),
        );
        if !self.is_call {
            match outcome {
                Outcome::Done(Answer::Deleted(deleted)) => write!(line, ", :deleted {deleted}"),
                Outcome::Done(Answer::Swapped(false)) => write!(line, ", :error :not-equal"),
                Outcome::Done(Answer::Invalid) => write!(line, ", :error :invalid"),
                Outcome::NotDone => write!(line, ", :error :not-done"),
                Outcome::Done(Answer::Written) if bare_ok_is_ambiguous(action) => write!(line, ", :answer :written"),
                _ => Ok(()),
            }
            .expect("writing to a string cannot fail");
            if let Some(Version { epoch, seqno }) = version {
                write!(line, ", :version [{epoch} {seqno}]").expect("writing to a string cannot fail");
            }
        }
        line.push_str("}\n");
        Some(line)
    }

    fn kind(&self) -> &'static str {
        match &self.operation.outcome {
            _ if self.is_call => "invoke",
            Outcome::Unknown => "info",
            Outcome::NotDone | Outcome::Done(Answer::Swapped(false) | Answer::Invalid) => "fail",
            Outcome::Done(_) => "ok",
        }
    }

    fn f_and_value(&self, form: Form) -> Option<(&'static str, String)> {
        match form {
            Form::Register => Some(self.register()),
            Form::ListAppend => Some(("txn", format!("[{}]", self.list_append()?))),
            Form::RwRegister => Some(("txn", format!("[{}]", self.rw_register()?))),
        }
    }

    fn register(&self) -> (&'static str, String) {
        match &self.operation.action {
            Action::Get => ("read", self.read_value().map_or("nil".into(), atom)),
            Action::Put(value) => ("write", atom(value)),
            Action::Delete => ("write", "nil".into()),
            Action::CompareAndSet { expected, new } => {
                let expected = expected.as_deref().map_or("nil".into(), atom);
                ("cas", format!("[{expected} {}]", atom(new)))
            }
            Action::Increment(by) => match self.answer() {
                Some(Answer::Number(number)) => ("increment", number.to_string()),
                _ => ("increment", by.to_string()),
            },
            Action::Append(suffix) => match self.answer() {
                Some(Answer::Length(length)) => ("append", length.to_string()),
                _ => ("append", atom(suffix)),
            },
        }
    }

    fn list_append(&self) -> Option<String> {
        let key = atom(&self.operation.key);
        match &self.operation.action {
            Action::Get if self.answer().is_none() => Some(format!("[:r {key} nil]")),
            Action::Get => {
                let value = std::str::from_utf8(self.read_value().unwrap_or_default()).ok()?;
                let elements: Option<Vec<i64>> = value.split_terminator(' ').map(|word| word.parse().ok()).collect();
                let elements: Vec<String> = elements?.iter().map(i64::to_string).collect();
                Some(format!("[:r {key} [{}]]", elements.join(" ")))
            }
            Action::Append(suffix) => {
                let element: i64 = std::str::from_utf8(suffix).ok()?.strip_suffix(' ')?.parse().ok()?;
                Some(format!("[:append {key} {element}]"))
            }
            _ => None,
        }
    }

    fn rw_register(&self) -> Option<String> {
        let key = atom(&self.operation.key);
        match &self.operation.action {
            Action::Get => Some(format!("[:r {key} {}]", self.read_value().map_or("nil".into(), atom))),
            Action::Put(value) => Some(format!("[:w {key} {}]", atom(value))),
            _ => None,
        }
    }

    fn answer(&self) -> Option<&Answer> {
        match &self.operation.outcome {
            Outcome::Done(answer) if !self.is_call => Some(answer),
            _ => None,
        }
    }

    fn read_value(&self) -> Option<&[u8]> {
        match self.answer() {
            Some(Answer::Value(Some(value))) => Some(value),
            _ => None,
        }
    }
}

/// An `:ok` of these carries a result, unless the answer held none.
fn bare_ok_is_ambiguous(action: &Action) -> bool {
    matches!(action, Action::Increment(_) | Action::Append(_))
}

pub(crate) fn atom(bytes: &[u8]) -> String {
    match crate::register::number(&Some(bytes.to_vec())) {
        Some(number) => number.to_string(),
        None => quoted(&text::encode(bytes)),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Reads what [`write`] writes in [`Form::Register`], and what Jepsen records of a register: a stream of maps or one vector.
///
/// Without `:time` the place in the file is the time. Without `:key` all is about the key `""`. Events of a process that is
/// not a number (the nemesis) are skipped. A call that never returned has an unknown outcome.
pub fn read(text: &str) -> Result<History, ParseError> {
    let mut reader = Reader::default();
    syntax::read_events(text, |process, time_ns, event| reader.event(process, time_ns, event))?;
    Ok(History::from_operations(reader.operations))
}

#[derive(Default)]
struct Reader {
    operations: Vec<Operation>,
    /// The operation each process is waiting for.
    open: BTreeMap<u64, usize>,
}

impl Reader {
    fn event(&mut self, process: u64, time_ns: u64, event: &Edn) -> Result<(), String> {
        match event.get("type").and_then(Edn::keyword) {
            Some("invoke") => self.call(process, time_ns, event),
            Some(kind @ ("ok" | "fail" | "info")) => self.settle(process, time_ns, kind, event),
            _ => Err(":type is not :invoke, :ok, :fail or :info".into()),
        }
    }

    fn call(&mut self, process: u64, time_ns: u64, event: &Edn) -> Result<(), String> {
        let key = match event.get("key") {
            Some(key) => bytes(key)?.ok_or(":key is nil")?,
            None => Vec::new(),
        };
        let client = event.get("client").and_then(Edn::unsigned).unwrap_or(process);
        let action = read_action(event)?;
        let outcome = Outcome::Unknown;
        let operation = Operation { client, key, call_ns: time_ns, return_ns: None, action, outcome, version: None };
        if self.open.insert(process, self.operations.len()).is_some() {
            return Err(format!("process {process} calls before its last call returned"));
        }
        self.operations.push(operation);
        Ok(())
    }

    fn settle(&mut self, process: u64, time_ns: u64, kind: &str, event: &Edn) -> Result<(), String> {
        let at = self.open.remove(&process).ok_or_else(|| format!("process {process} returns without a call"))?;
        let operation = &mut self.operations[at];
        if time_ns < operation.call_ns {
            return Err("returned before it was called".into());
        }
        operation.outcome = match kind {
            "info" => return Ok(()),
            "ok" => Outcome::Done(read_answer(&operation.action, event)?),
            _ => match event.get("error").and_then(Edn::keyword) {
                Some("not-equal") => Outcome::Done(Answer::Swapped(false)),
                Some("invalid") => Outcome::Done(Answer::Invalid),
                _ => Outcome::NotDone,
            },
        };
        operation.return_ns = Some(time_ns);
        operation.version = read_version(event)?;
        Ok(())
    }
}

fn read_action(event: &Edn) -> Result<Action, String> {
    let value = event.get("value").unwrap_or(&Edn::Nil);
    match event.get("f").and_then(Edn::keyword) {
        Some("read") => Ok(Action::Get),
        Some("write") => Ok(bytes(value)?.map_or(Action::Delete, Action::Put)),
        Some("cas") => match value {
            Edn::Sequence(pair) if pair.len() == 2 => {
                let new = bytes(&pair[1])?.ok_or("a swap to nil")?;
                Ok(Action::CompareAndSet { expected: bytes(&pair[0])?, new })
            }
            _ => Err("the :value of a :cas is [expected new]".into()),
        },
        Some("increment") => match value {
            Edn::Int(by) => Ok(Action::Increment(*by)),
            _ => Err("the :value of an :increment is a number".into()),
        },
        Some("append") => Ok(Action::Append(bytes(value)?.ok_or("an append of nil")?)),
        _ => Err(":f is not :read, :write, :cas, :increment or :append".into()),
    }
}

fn read_answer(action: &Action, event: &Edn) -> Result<Answer, String> {
    let value = event.get("value").unwrap_or(&Edn::Nil);
    let is_bare = event.get("answer").and_then(Edn::keyword) == Some("written");
    match (action, value) {
        (Action::Get, value) => Ok(Answer::Value(bytes(value)?)),
        (Action::CompareAndSet { .. }, _) => Ok(Answer::Swapped(true)),
        (Action::Delete, _) => match event.get("deleted") {
            Some(Edn::Bool(deleted)) => Ok(Answer::Deleted(*deleted)),
            _ => Ok(Answer::Written),
        },
        (Action::Put(_), _) => Ok(Answer::Written),
        (Action::Increment(_) | Action::Append(_), _) if is_bare => Ok(Answer::Written),
        (Action::Increment(_), Edn::Int(number)) => Ok(Answer::Number(*number)),
        (Action::Increment(_), _) => Err("the result of an :increment is a number".into()),
        (Action::Append(_), Edn::Int(length)) if *length >= 0 => Ok(Answer::Length(*length as u64)),
        (Action::Append(_), _) => Err("the result of an :append is a length".into()),
    }
}

fn read_version(event: &Edn) -> Result<Option<Version>, String> {
    match event.get("version") {
        None | Some(Edn::Nil) => Ok(None),
        Some(Edn::Sequence(pair)) if pair.len() == 2 => match (pair[0].unsigned(), pair[1].unsigned()) {
            (Some(epoch), Some(seqno)) => Ok(Some(Version { epoch, seqno })),
            _ => Err(":version is [epoch seqno]".into()),
        },
        Some(_) => Err(":version is [epoch seqno]".into()),
    }
}

/// `None` is nil.
pub(crate) fn bytes(value: &Edn) -> Result<Option<Vec<u8>>, String> {
    match value {
        Edn::Nil => Ok(None),
        Edn::Int(number) => Ok(Some(number.to_string().into_bytes())),
        Edn::Text(text) => text::decode(text).map(Some).ok_or_else(|| format!("{text:?} is not hexadecimal")),
        Edn::Keyword(name) => Ok(Some(name.clone().into_bytes())),
        other => Err(format!("{other:?} is no key or value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(history: &History, form: Form) -> String {
        let mut bytes = Vec::new();
        write(history, form, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_unknown_outcome_retires_its_process() {
        let mut history = History::new();
        history.call(4, 10, "x", Action::Put(b"1".to_vec()));
        let second = history.call(4, 20, "x", Action::Get);
        history.done(second, 30, Answer::Value(None), None);
        let text = written(&history, Form::Register);
        let expected = "\
{:index 0, :time 10, :process 0, :type :invoke, :f :write, :value 1, :key \"x\", :client 4}
{:index 1, :time 20, :process 1, :type :invoke, :f :read, :value nil, :key \"x\", :client 4}
{:index 2, :time 30, :process 1, :type :ok, :f :read, :value nil, :key \"x\", :client 4}
{:index 3, :time 30, :process 0, :type :info, :f :write, :value 1, :key \"x\", :client 4}
";
        assert_eq!(text, expected);
        assert_eq!(read(&text).unwrap(), history);
    }

    #[test]
    fn elle_gets_transactions_of_one_step() {
        let mut history = History::new();
        let append = history.call(0, 1, "7", Action::Append(b"3 ".to_vec()));
        history.done(append, 2, Answer::Length(2), None);
        let get = history.call(0, 3, "7", Action::Get);
        history.done(get, 4, Answer::Value(Some(b"3 ".to_vec())), None);
        let text = written(&history, Form::ListAppend);
        assert!(text.contains(":type :ok, :f :txn, :value [[:append 7 3]]"), "{text}");
        assert!(text.contains(":type :invoke, :f :txn, :value [[:r 7 nil]]"), "{text}");
        assert!(text.contains(":type :ok, :f :txn, :value [[:r 7 [3]]]"), "{text}");
        assert!(matches!(write(&history, Form::RwRegister, Vec::new()), Err(WriteError::NotInForm { .. })));
    }

    #[test]
    fn a_hand_written_file_needs_no_times() {
        let text = "[{:process 0 :type :invoke :f :write :value 1} {:process :nemesis :type :info :f :kill}
                     {:process 1 :type :invoke :f :read} {:process 0 :type :fail :f :write :value 1}]";
        let history = read(text).unwrap();
        let operations = history.operations();
        assert_eq!((operations[0].call_ns, operations[0].return_ns), (0, Some(3)));
        assert_eq!(operations[0].outcome, Outcome::NotDone);
        assert_eq!((operations[1].call_ns, &operations[1].outcome), (2, &Outcome::Unknown));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        let call = "{:process 0 :type :invoke :f :write :value 1}\n";
        for bad in [call, "{:process 1 :type :ok :f :read}", "{:process 1 :type :invoke :f :jump}", "{:type :ok}"] {
            assert_eq!(read(&format!("{call}{bad}")).unwrap_err().line, 2, "{bad}");
        }
    }
}
