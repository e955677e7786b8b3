//! Nodes as processes: this program again, once for each.
//!
//! A child stops cleanly when its standard input ends, so it never outlives its parent, however that dies. It is in a
//! process group of its own: Ctrl-C reaches the parent alone, which then stops all in order.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::shell::config::MasterAddress;
use crate::shell::dev::layout::NodeName;
use crate::shell::dev::{POLL, Plan};
use crate::shell::failure::Failure;
use clap::ValueEnum;
use env::Env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub struct Processes {
    program: PathBuf,
    children: Vec<Running>,
}

struct Running {
    node: NodeName,
    arguments: Vec<String>,
    child: Child,
    ended: bool,
}

pub fn own_pid() -> u32 {
    std::process::id()
}

impl Processes {
    pub fn start(plan: &Plan) -> Result<Processes, Failure> {
        let program = std::env::current_exe()?;
        let mut processes = Processes { program, children: Vec::new() };
        for node in plan.layout.nodes() {
            processes.start_one(plan, node)?;
        }
        Ok(processes)
    }

    fn start_one(&mut self, plan: &Plan, node: NodeName) -> Result<(), Failure> {
        let arguments = arguments(plan, node);
        let child = Command::new(&self.program)
            .args(&arguments)
            .arg("--exit-with-stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::Failed(format!("start {node}: {error}")))?;
        self.children.push(Running { node, arguments, child, ended: false });
        Ok(())
    }

    /// Completes with what ended and how, once for each.
    pub async fn first_ended(&mut self, env: &Env) -> String {
        loop {
            for running in self.children.iter_mut().filter(|running| !running.ended) {
                if let Ok(Some(status)) = running.child.try_wait() {
                    running.ended = true;
                    return format!("{} (pid {}) has ended: {status}", running.node, running.child.id());
                }
            }
            env.sleep(POLL).await;
        }
    }

    /// Region servers first: their last words go to the masters.
    pub async fn stop(mut self, env: &Env) -> io::Result<()> {
        let (mut servers, mut masters): (Vec<_>, Vec<_>) =
            self.children.drain(..).partition(|running| matches!(running.node, NodeName::Server(_)));
        stop_all(env, &mut servers).await?;
        stop_all(env, &mut masters).await
    }

    pub fn pid(&self, node: NodeName) -> u32 {
        self.running(node).child.id()
    }

    /// What starts the node again.
    pub fn command(&self, node: NodeName) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        std::iter::once(program).chain(self.running(node).arguments.iter().cloned()).collect()
    }

    fn running(&self, node: NodeName) -> &Running {
        self.children.iter().find(|running| running.node == node).expect("every node of the layout was started")
    }
}

async fn stop_all(env: &Env, children: &mut [Running]) -> io::Result<()> {
    for running in children.iter_mut() {
        drop(running.child.stdin.take());
    }
    for running in children.iter_mut() {
        while running.child.try_wait()?.is_none() {
            env.sleep(POLL).await;
        }
    }
    Ok(())
}

impl Drop for Running {
    /// One that did not stop by itself.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn arguments(plan: &Plan, node: NodeName) -> Vec<String> {
    let mut arguments: Vec<String> = match node {
        NodeName::Master(id) => vec!["master".into(), "--id".into(), id.to_string()],
        NodeName::Server(_) => vec!["server".into()],
    };
    let masters = plan.layout.master_map().into_iter().map(|(id, address)| MasterAddress { id, address }.to_string());
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    flag("--data-dir", plan.folder(node).to_string_lossy().into_owned());
    flag("--listen", plan.layout.address(node));
    flag("--masters", masters.collect::<Vec<_>>().join(","));
    if let Some(io) = plan.io {
        flag("--io", io.to_possible_value().expect("none is hidden").get_name().to_owned());
    }
    flag("--log", plan.log.clone());
    arguments
}
