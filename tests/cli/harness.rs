//! Runs the program as its users do: commands, their output, their status, signals.

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing here takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn steadfast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_steadfast"))
}

/// What a command that has ended left behind.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub out: String,
    pub errors: String,
}

impl Ended {
    #[track_caller]
    pub fn succeeds(self) -> String {
        assert_eq!(self.status, 0, "{self:?}");
        self.out
    }

    /// Fails with this status and says all of this on standard error.
    #[track_caller]
    pub fn fails(self, status: i32, words: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        words.iter().for_each(|word| assert!(self.errors.contains(word), "{word:?} is not in {self:?}"));
    }
}

/// Runs to its end, with `input` as standard input.
pub fn run_with_input(arguments: &[&str], input: &[u8]) -> Ended {
    let mut running = Running::start(steadfast().args(arguments));
    running.input.take().expect("piped").write_all(input).expect("it reads its input");
    running.wait()
}

pub fn run(arguments: &[&str]) -> Ended {
    run_with_input(arguments, b"")
}

/// A command that runs. Killed when dropped.
pub struct Running {
    child: Child,
    pub input: Option<ChildStdin>,
    lines: Receiver<String>,
    out: String,
    errors: Option<thread::JoinHandle<String>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program starts");
        let (sender, lines) = channel();
        let out = child.stdout.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                if sender.send(line.expect("its output is text")).is_err() {
                    return;
                }
            }
        });
        let mut errors = child.stderr.take().expect("piped");
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            errors.read_to_end(&mut text).expect("its errors can be read");
            String::from_utf8_lossy(&text).into_owned()
        });
        Running { input: child.stdin.take(), child, lines, out: String::new(), errors: Some(errors) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads standard output up to a line that says just this.
    pub fn wait_for_line(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line == wanted;
                    self.out += &line;
                    self.out.push('\n');
                    if found {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {wanted:?} in time, only {:?}", self.out),
                Err(RecvTimeoutError::Disconnected) => {
                    let errors = self.errors.take().expect("waited for once").join().expect("reads only");
                    panic!("no {wanted:?}, only {:?} and {errors:?}", self.out)
                }
            }
        }
    }

    /// Waits for the end; kills what does not end.
    pub fn wait(mut self) -> Ended {
        drop(self.input.take());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end, so far {:?}", self.out);
            thread::sleep(Duration::from_millis(10));
        };
        self.out.extend(self.lines.iter().map(|line| line + "\n"));
        let errors = self.errors.take().expect("waited for once").join().expect("reads only");
        Ended { status: status.code().unwrap_or(-1), out: std::mem::take(&mut self.out), errors }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// Ports that no other test of this process uses, and nobody else listens on.
pub fn port_base() -> u16 {
    static TAKEN: LazyLock<Mutex<BTreeSet<u16>>> = LazyLock::new(Mutex::default);
    // Below the ports that the system gives to outgoing connections.
    let bases: Vec<u16> = (10_000..32_000).step_by(200).collect();
    let first = std::process::id() as usize * 7 % bases.len();
    for at in 0..bases.len() {
        let base = bases[(first + at) % bases.len()];
        let mut ports = (base + 1..base + 6).chain(base + 101..base + 110);
        if ports.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) && TAKEN.lock().unwrap().insert(base) {
            return base;
        }
    }
    panic!("no free ports");
}

/// A cluster of `steadfast dev`.
pub struct Cluster {
    pub dev: Running,
    pub folder: PathBuf,
    pub connect: String,
    pub ready: Value,
}

impl Cluster {
    /// Starts one in `folder`, which may hold one already.
    pub fn start(folder: &Path, flags: &[&str]) -> Cluster {
        let ready_file = folder.with_extension("ready.json");
        let _ = std::fs::remove_file(&ready_file);
        let mut command = steadfast();
        command.arg("dev").arg("--data-dir").arg(folder).arg("--ready-file").arg(&ready_file).args(flags);
        let mut dev = Running::start(&mut command);
        dev.wait_for_line("ready");
        let ready: Value = serde_json::from_slice(&std::fs::read(&ready_file).unwrap()).unwrap();
        let connect = ready["connect"].as_str().unwrap().to_owned();
        Cluster { dev, folder: folder.to_owned(), connect, ready }
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ended {
        run_with_input(&[arguments, &["--connect", &self.connect]].concat(), input)
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with_input(arguments, b"")
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat()).succeeds()).expect("an answer in JSON")
    }

    /// Ctrl-C, and what came of it.
    #[track_caller]
    pub fn stop(self) -> String {
        signal("INT", self.dev.pid());
        let ended = self.dev.wait();
        assert_eq!(ended.status, 0, "{ended:?}");
        ended.out
    }
}

/// Asks again until it is so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}
