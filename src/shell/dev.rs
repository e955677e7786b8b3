//! `steadfast dev`: a whole cluster on one machine, in one folder.
//!
//! What happens, in this order: the folder is locked and its [`layout`] found or made; every port is tried, so that a taken
//! one is named before anything runs; all nodes start, as tasks of this process or as [`processes`]; addresses and commands
//! to try are printed; once the cluster answers and serves what it held before, `ready` is printed and the ready file
//! written. Ctrl-C stops region servers first, then masters.
//!
//! Missing on purpose: restarting a process that died. Here one is killed to see what happens; where that matters a
//! supervisor does it.

pub mod layout;
mod processes;
mod tasks;

use crate::protocol::ClusterStatus;
use crate::shell::args::{Connection, Dev};
use crate::shell::failure::Failure;
use crate::shell::limits::*;
use crate::shell::output::{count, print};
use crate::shell::{cluster, logging, role};
use env::Env;
use env::real::{IoChoice, Options};
use layout::{Layout, NodeName, Wanted};
use processes::Processes;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tasks::Tasks;

const POLL: Duration = Duration::from_millis(20);

/// How the nodes of a cluster are started.
#[derive(Clone, Debug)]
struct Plan {
    layout: Layout,
    /// Absolute.
    data_dir: PathBuf,
    io: Option<crate::shell::config::Io>,
    log: String,
}

/// The cluster's nodes.
enum Nodes {
    Tasks(Tasks),
    Processes(Processes),
}

/// The ready file.
#[derive(Serialize)]
struct Ready {
    data_dir: PathBuf,
    /// For `--connect`.
    connect: String,
    pid: u32,
    masters: Vec<ReadyNode>,
    servers: Vec<ReadyNode>,
}

#[derive(Serialize)]
struct ReadyNode {
    name: String,
    address: String,
    data_dir: PathBuf,
    pid: u32,
    /// What starts the node again; only where it is a process of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
}

pub async fn run(command: &Dev, log: Option<String>) -> Result<(), Failure> {
    let log = log.unwrap_or_else(|| "warn".into());
    logging::start(&log)?;
    let asked_to_stop = env::real::shutdown_signal()?;
    let data_dir = std::path::absolute(&command.data_dir)?;
    let env = env::real::open(Options { data_dir: data_dir.clone(), node: "dev".into(), io: IoChoice::Threads })?;
    let in_folder = |failure: Failure| match failure {
        Failure::Failed(what) => Failure::Failed(format!("{}: {what}", data_dir.display())),
        usage => usage,
    };
    let _lock = layout::lock(&env).await.map_err(|error| in_folder(error.into()))?;
    let wanted = Wanted { masters: command.masters, servers: command.servers, port_base: command.port_base };
    let layout = layout::find_or_make(&env, wanted).await.map_err(in_folder)?;
    check_ports(&env, &layout).await?;
    let plan = Plan { layout, data_dir: data_dir.clone(), io: command.io, log };
    let mut nodes = Nodes::start(&plan, command.processes).await?;
    let served = tokio::select! {
        biased;
        () = asked_to_stop => Ok(()),
        served = serve(&env, command, &plan, &mut nodes) => served,
    };
    if served.is_ok() {
        print("stopping\n")?;
    }
    let stopped = role::stop_within(&env, STOP_TIME_MAX, nodes.stop(&env)).await;
    served?;
    stopped??;
    Ok(print("stopped\n")?)
}

/// Says where everything is, waits until it serves, says so, and goes on for ever, unless the start fails.
async fn serve(env: &Env, command: &Dev, plan: &Plan, nodes: &mut Nodes) -> Result<(), Failure> {
    print(plan.greeting(command.processes))?;
    let ready = tokio::select! {
        biased;
        ended = nodes.first_ended(env) => return Err(Failure::Failed(format!("{ended} before the cluster served"))),
        ready = wait_until_ready(env, plan) => ready,
    };
    if let Some(why) = ready? {
        eprintln!("steadfast: {why}");
    }
    if let Some(file) = &command.ready_file {
        let mut text = serde_json::to_vec_pretty(&plan.ready(nodes)).map_err(Failure::failed)?;
        text.push(b'\n');
        env::real::write_user_file(file, &text)?;
    }
    print("ready\n")?;
    loop {
        let ended = nodes.first_ended(env).await;
        eprintln!("steadfast: {ended}");
    }
}

/// A taken port is named before anything is started.
async fn check_ports(env: &Env, layout: &Layout) -> Result<(), Failure> {
    for node in layout.nodes() {
        let address = layout.address(node);
        if let Err(error) = env.net().listen(&address).await {
            return Err(Failure::Failed(format!(
                "the port for {node} is not free: {error}. Stop what listens there (another `steadfast dev`?), or start a \
                 cluster in a new folder with --port-base PORT"
            )));
        }
    }
    Ok(())
}

/// Waits for a cluster that answers. What it held before may not all come back; that is told, not waited for for ever.
async fn wait_until_ready(env: &Env, plan: &Plan) -> Result<Option<String>, Failure> {
    let connection = plan.connection();
    let client = cluster::client(env, &connection)?;
    let begun = env.now();
    loop {
        let status = client.status().await;
        let waited = env.now().since(begun);
        match status.map(|status| missing(&status, &plan.layout)) {
            Ok(Missing::Nothing) => return Ok(None),
            Ok(Missing::Regions(number)) if waited > DEV_REGIONS_TIME_MAX => {
                return Ok(Some(format!("{} not available yet, see `steadfast status`", count(number, "region"))));
            }
            Ok(Missing::Nodes(what)) if waited > DEV_START_TIME_MAX => {
                return Err(Failure::Failed(format!("the cluster does not come up: {what}")));
            }
            Err(error) if waited > DEV_START_TIME_MAX => {
                return Err(Failure::Failed(format!("the cluster does not come up: {error}")));
            }
            _ => env.sleep(POLL).await,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Missing {
    Nothing,
    Regions(u64),
    Nodes(String),
}

fn missing(status: &ClusterStatus, layout: &Layout) -> Missing {
    let alive = status.servers.iter().filter(|server| server.alive).count();
    if !status.masters.iter().any(|master| master.active) {
        return Missing::Nodes("no master is active".into());
    }
    if alive < layout.servers as usize {
        return Missing::Nodes(format!("{alive} of {} servers are alive", layout.servers));
    }
    match status.tables.iter().map(|table| table.unavailable).sum() {
        0 => Missing::Nothing,
        regions => Missing::Regions(regions),
    }
}

impl Plan {
    fn folder(&self, node: NodeName) -> PathBuf {
        self.data_dir.join(node.to_string())
    }

    fn connection(&self) -> Connection {
        let servers = (1..=self.layout.servers).map(NodeName::Server);
        Connection {
            connect: servers.map(|server| self.layout.address(server)).collect(),
            secret_file: None,
            timeout: DEV_STATUS_TIME,
        }
    }

    fn greeting(&self, processes: bool) -> String {
        let Layout { masters, servers, .. } = self.layout;
        let how = if processes { "in a process each" } else { "in one process" };
        let mut text = format!(
            "Steadfast: {}, {}, {how}\ndata in {}\n\n",
            count(masters.into(), "master"),
            count(servers.into(), "region server"),
            self.data_dir.display()
        );
        for node in self.layout.nodes() {
            let _ = writeln!(text, "  {:<10} {}", node.to_string(), self.layout.address(node));
        }
        let first = self.layout.address(NodeName::Server(1));
        let connect =
            if first == crate::shell::args::DEFAULT_ADDRESS { String::new() } else { format!(" --connect {first}") };
        let factor = servers.min(3);
        let _ = write!(
            text,
            "\nTry, in another terminal:\n  \
             steadfast table create demo:users --regions 8 --factor {factor} --salt xxh32{connect}\n  \
             steadfast put demo:users alice 42{connect}\n  \
             steadfast get demo:users alice{connect}\n\nCtrl-C stops it.\n"
        );
        text
    }

    fn ready(&self, nodes: &Nodes) -> Ready {
        let ready = |node| ReadyNode {
            name: NodeName::to_string(&node),
            address: self.layout.address(node),
            data_dir: self.folder(node),
            pid: nodes.pid(node),
            command: nodes.command(node),
        };
        Ready {
            data_dir: self.data_dir.clone(),
            connect: self.layout.address(NodeName::Server(1)),
            pid: processes::own_pid(),
            masters: (1..=self.layout.masters).map(NodeName::Master).map(ready).collect(),
            servers: (1..=self.layout.servers).map(NodeName::Server).map(ready).collect(),
        }
    }
}

impl Nodes {
    async fn start(plan: &Plan, processes: bool) -> Result<Nodes, Failure> {
        if processes {
            Ok(Nodes::Processes(Processes::start(plan)?))
        } else {
            Tasks::start(plan).await.map(Nodes::Tasks)
        }
    }

    /// Completes with what ended and how, once for each node that ends by itself.
    async fn first_ended(&mut self, env: &Env) -> String {
        match self {
            Nodes::Tasks(tasks) => tasks.first_ended().await,
            Nodes::Processes(processes) => processes.first_ended(env).await,
        }
    }

    async fn stop(self, env: &Env) -> Result<(), Failure> {
        match self {
            Nodes::Tasks(tasks) => tasks.stop().await,
            Nodes::Processes(processes) => processes.stop(env).await?,
        }
        Ok(())
    }

    fn pid(&self, node: NodeName) -> u32 {
        match self {
            Nodes::Tasks(_) => processes::own_pid(),
            Nodes::Processes(processes) => processes.pid(node),
        }
    }

    fn command(&self, node: NodeName) -> Option<Vec<String>> {
        match self {
            Nodes::Tasks(_) => None,
            Nodes::Processes(processes) => Some(processes.command(node)),
        }
    }
}
