//! Transactions as Elle reads them.
//!
//! ```text
//! {:index 0, :time 10, :process 0, :type :invoke, :f :txn, :value [[:append "x" 1] [:r "y" nil]]}
//! {:index 1, :time 25, :process 0, :type :ok, :f :txn, :value [[:append "x" 1] [:r "y" [3 4]]]}
//! ```
//!
//! `:fail` is aborted, `:info` unknown; its process is used no more.

use super::{Outcome, Step, Transaction};
use crate::history::ParseError;
use crate::history::edn::{atom, bytes};
use crate::history::syntax::{self, Edn};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Each transaction has a process to itself, as no process may do two things at once.
pub fn write(transactions: &[Transaction], mut to: impl Write) -> io::Result<()> {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (at, transaction) in transactions.iter().enumerate() {
        events.push((transaction.call_ns, false, at));
        events.push((transaction.return_ns.unwrap_or(u64::MAX), true, at));
    }
    events.sort_unstable();
    for (index, &(time_ns, is_return, at)) in events.iter().enumerate() {
        let transaction = &transactions[at];
        let kind = match transaction.outcome {
            _ if !is_return => "invoke",
            Outcome::Committed => "ok",
            Outcome::Aborted => "fail",
            Outcome::Unknown => "info",
        };
        // What never returned is told at the end, in the order of time.
        let time_ns = if time_ns == u64::MAX { last_ns(transactions) } else { time_ns };
        let shows = is_return && transaction.outcome == Outcome::Committed;
        let steps: Vec<String> = transaction.steps.iter().map(|step| told(step, shows)).collect();
        writeln!(
            to,
            "{{:index {index}, :time {time_ns}, :process {at}, :type :{kind}, :f :txn, :value [{}]}}",
            steps.join(" ")
        )?;
    }
    Ok(())
}

fn last_ns(transactions: &[Transaction]) -> u64 {
    transactions.iter().map(|transaction| transaction.return_ns.unwrap_or(transaction.call_ns)).max().unwrap_or(0)
}

fn told(step: &Step, shows: bool) -> String {
    match step {
        Step::Append { key, element } => format!("[:append {} {element}]", atom(key)),
        Step::Read { key, list: Some(list) } if shows => {
            let elements: Vec<String> = list.iter().map(i64::to_string).collect();
            format!("[:r {} [{}]]", atom(key), elements.join(" "))
        }
        Step::Read { key, .. } => format!("[:r {} nil]", atom(key)),
    }
}

/// Reads what [`write`] writes and what Jepsen records of list-append, in the order of the calls.
pub fn read(text: &str) -> Result<Vec<Transaction>, ParseError> {
    let mut reader = Reader::default();
    syntax::read_events(text, |process, time_ns, event| reader.event(process, time_ns, event))?;
    Ok(reader.transactions)
}

#[derive(Default)]
struct Reader {
    transactions: Vec<Transaction>,
    /// The transaction each process is waiting for.
    open: BTreeMap<u64, usize>,
}

impl Reader {
    fn event(&mut self, process: u64, time_ns: u64, event: &Edn) -> Result<(), String> {
        let steps = event.get("value").ok_or("no :value").map_err(str::to_owned).and_then(read_steps)?;
        match event.get("type").and_then(Edn::keyword) {
            Some("invoke") => {
                if self.open.insert(process, self.transactions.len()).is_some() {
                    return Err(format!("process {process} calls before its last call returned"));
                }
                let outcome = Outcome::Unknown;
                self.transactions.push(Transaction { call_ns: time_ns, return_ns: None, steps, outcome });
                Ok(())
            }
            Some(kind @ ("ok" | "fail" | "info")) => self.settle(process, time_ns, kind, steps),
            _ => Err(":type is not :invoke, :ok, :fail or :info".into()),
        }
    }

    fn settle(&mut self, process: u64, time_ns: u64, kind: &str, steps: Vec<Step>) -> Result<(), String> {
        let at = self.open.remove(&process).ok_or_else(|| format!("process {process} returns without a call"))?;
        let transaction = &mut self.transactions[at];
        if time_ns < transaction.call_ns {
            return Err("returned before it was called".into());
        }
        transaction.outcome = match kind {
            "info" => return Ok(()),
            "ok" => {
                transaction.steps = steps;
                Outcome::Committed
            }
            _ => Outcome::Aborted,
        };
        transaction.return_ns = Some(time_ns);
        Ok(())
    }
}

fn read_steps(value: &Edn) -> Result<Vec<Step>, String> {
    match value {
        Edn::Sequence(steps) => steps.iter().map(read_step).collect(),
        _ => Err(":value is not a vector of steps".into()),
    }
}

fn read_step(step: &Edn) -> Result<Step, String> {
    let Edn::Sequence(parts) = step else { return Err(format!("{step:?} is no step")) };
    let [kind, key, value] = parts.as_slice() else { return Err(format!("{step:?} has not three parts")) };
    let key = bytes(key)?.ok_or("a key is nil")?;
    match (kind.keyword(), value) {
        (Some("append"), Edn::Int(element)) => Ok(Step::Append { key, element: *element }),
        (Some("r"), Edn::Nil) => Ok(Step::Read { key, list: None }),
        (Some("r"), Edn::Sequence(list)) => {
            let elements: Option<Vec<i64>> = list.iter().map(element).collect();
            Ok(Step::Read { key, list: Some(elements.ok_or("a list of other things than numbers")?) })
        }
        _ => Err(format!("{step:?} is neither [:append key number] nor [:r key list]")),
    }
}

fn element(value: &Edn) -> Option<i64> {
    match value {
        Edn::Int(element) => Some(*element),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jepsen_records_is_read() {
        let text = "[{:process 0 :type :invoke :f :txn :value [[:append 7 1] [:r :k nil]]}
                     {:process :nemesis :type :info :f :kill}
                     {:process 0 :type :ok :f :txn :value [[:append 7 1] [:r :k [2 3]]]}]";
        let steps = vec![Step::append("7", 1), Step::read("k", &[2, 3])];
        let expected = Transaction { call_ns: 0, return_ns: Some(2), steps, outcome: Outcome::Committed };
        assert_eq!(read(text).unwrap(), [expected]);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        let call = "{:process 0 :type :invoke :f :txn :value [[:r 1 nil]]}\n";
        let returned = "{:process 1 :type :ok :f :txn :value []}";
        let no_step = "{:process 1 :type :invoke :f :txn :value [[:w 1 2]]}";
        for bad in [call, returned, no_step, "{:process 1 :type :invoke :f :txn}"] {
            assert_eq!(read(&format!("{call}{bad}")).unwrap_err().line, 2, "{bad}");
        }
    }
}
