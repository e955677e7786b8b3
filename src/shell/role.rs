//! One node, from flags or a file, until it is asked to stop.

use crate::node::{MasterNode, MasterNodeOptions, Server, ServerOptions, Stop};
use crate::protocol::handshake::{Secret, check_bind_address};
use crate::shell::args;
use crate::shell::cluster::read_secret;
use crate::shell::config::{self, File, Io, Role, ServerSettings, Settings};
use crate::shell::failure::Failure;
use crate::shell::limits::STOP_TIME_MAX;
use crate::shell::logging;
use crate::shell::output::print;
use env::Env;
use env::real::Options;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A node that runs, in its own environment.
pub struct Node {
    env: Env,
    running: Running,
}

enum Running {
    Master(MasterNode),
    Server(Server),
}

/// What a node is and where.
pub struct NodeOptions {
    pub kind: Kind,
    pub listen: String,
    pub masters: BTreeMap<u64, String>,
    pub secret: Option<Secret>,
    /// Of a region server.
    pub server: ServerSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Master { id: u64 },
    Server,
}

/// Complete settings of one process.
struct Process {
    data_dir: PathBuf,
    io: Io,
    log: String,
    stop_time_max: Duration,
    node: NodeOptions,
}

pub async fn run_server(command: args::Server, log: Option<String>) -> Result<(), Failure> {
    let file = read_file(command.role.config.as_deref(), Some(Role::Server))?;
    let server = command.server.or(file.server);
    let process = Process::new(Kind::Server, command.settings.or(file.settings), server, log.or(file.log))?;
    process.check_or_run(&command.role).await
}

pub async fn run_master(command: args::Master, log: Option<String>) -> Result<(), Failure> {
    let file = read_file(command.role.config.as_deref(), Some(Role::Master))?;
    let id = command.id.or(file.id).ok_or_else(|| missing("id", "--id ID"))?;
    let process = Process::new(Kind::Master { id }, command.settings.or(file.settings), file.server, log.or(file.log))?;
    process.check_or_run(&command.role).await
}

pub fn check_config(command: &args::CheckConfig) -> Result<(), Failure> {
    let file = read_file(Some(&command.file), None)?;
    let role = file.role.ok_or_else(|| Failure::Usage(format!("{}: no key 'role'", command.file.display())))?;
    let kind = match role {
        Role::Server => Kind::Server,
        Role::Master => Kind::Master { id: file.id.ok_or_else(|| missing("id", "--id ID"))? },
    };
    Process::new(kind, file.settings, file.server, file.log)?;
    Ok(print(format_args!("{}: good settings of a {role}\n", command.file.display()))?)
}

/// The settings file, if there is one; it may leave its role out where the command says it.
fn read_file(path: Option<&Path>, role: Option<Role>) -> Result<File, Failure> {
    let Some(path) = path else { return Ok(File::default()) };
    let text = env::real::read_user_file(path).map_err(Failure::usage)?;
    let file = config::parse(&path.to_string_lossy(), &text).map_err(Failure::usage)?;
    match (role, file.role) {
        (Some(role), Some(other)) if role != other => {
            Err(Failure::Usage(format!("{}: these are settings of a {other}, not of a {role}", path.display())))
        }
        _ => Ok(file),
    }
}

fn missing(key: &str, flag: &str) -> Failure {
    Failure::Usage(format!("'{key}' is missing: give {flag}, or the key in the file of --config"))
}

impl Process {
    fn new(kind: Kind, settings: Settings, server: ServerSettings, log: Option<String>) -> Result<Process, Failure> {
        let masters = settings.master_map();
        if masters.is_empty() {
            return Err(missing("masters", "--masters ID=HOST:PORT,.."));
        }
        if masters.len() < settings.masters.len() {
            return Err(Failure::usage("masters: a number stands there twice"));
        }
        if let Kind::Master { id } = kind
            && !masters.contains_key(&id)
        {
            return Err(Failure::Usage(format!("id: master {id} is not one of the masters")));
        }
        let listen = match kind {
            // A master listens where the others look for it, unless told.
            Kind::Master { id } => settings.listen.unwrap_or_else(|| masters[&id].clone()),
            Kind::Server => settings.listen.ok_or_else(|| missing("listen", "--listen HOST:PORT"))?,
        };
        let secret = read_secret(settings.secret_file.as_deref())?;
        check_bind_address(&listen, secret.is_some()).map_err(Failure::usage)?;
        Ok(Process {
            data_dir: settings.data_dir.ok_or_else(|| missing("data_dir", "--data-dir DIR"))?,
            io: settings.io.unwrap_or(Io::Auto),
            log: log.unwrap_or_else(|| "info".into()),
            stop_time_max: settings.stop_time_max.unwrap_or(STOP_TIME_MAX),
            node: NodeOptions { kind, listen, masters, secret, server },
        })
    }

    async fn check_or_run(self, flags: &args::RoleFlags) -> Result<(), Failure> {
        if flags.check_config {
            return Ok(print("good settings\n")?);
        }
        logging::start(&self.log)?;
        self.run(flags.exit_with_stdin).await
    }

    async fn run(self, exit_with_stdin: bool) -> Result<(), Failure> {
        let asked_to_stop = env::real::shutdown_signal()?;
        let node = self.node.kind.to_string();
        let env = env::real::open(Options { data_dir: self.data_dir.clone(), node, io: self.io.choice() })?;
        let node = Node::start(&env, self.node).await?;
        print(format_args!("listening on {}\n", node.address()))?;
        let end = tokio::select! {
            biased;
            () = asked_to_stop => End::Asked(Stop::Alone),
            () = stdin_ended(&env), if exit_with_stdin => End::Asked(Stop::WithAll),
            why = serve(&env, &node) => End::Failed(why),
        };
        let how = if let End::Asked(how) = end { how } else { Stop::WithAll };
        let stopped = stop_within(&env, self.stop_time_max, node.stop(how)).await;
        if let End::Failed(why) = end { Err(Failure::Failed(why)) } else { stopped }
    }
}

/// Waits for a stop, until it takes too long or a second Ctrl-C asks for a quicker one.
pub async fn stop_within<T>(env: &Env, limit: Duration, stop: impl Future<Output = T>) -> Result<T, Failure> {
    let asked_again = env::real::shutdown_signal()?;
    tokio::select! {
        biased;
        stopped = env.timeout(limit, stop) => {
            stopped.map_err(|_| Failure::Failed(format!("not stopped after {} s", limit.as_secs_f64())))
        }
        () = asked_again => Err(Failure::failed("stopped before all was closed")),
    }
}

enum End {
    Asked(Stop),
    Failed(String),
}

/// Says when the node is ready, and waits until it fails.
async fn serve(env: &Env, node: &Node) -> String {
    let ready = async {
        while !node.is_ready() {
            env.sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        biased;
        why = node.failed() => return why,
        () = ready => {}
    }
    if let Err(error) = print("ready\n") {
        tracing::debug!(%error, "nobody reads what is printed");
    }
    node.failed().await
}

async fn stdin_ended(env: &Env) {
    let read = || std::io::copy(&mut env::real::user_input(None)?, &mut std::io::sink());
    let _ = env.blocking(read).await;
}

/// What is asked for, or a quarter of the machine's memory.
fn memory_bytes(asked: Option<u64>, unknown: usize) -> usize {
    let quarter = || env::real::machine_memory_bytes().map(|bytes| bytes / 4);
    let bytes = asked.or_else(quarter).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    bytes.unwrap_or(unknown)
}

impl Node {
    pub async fn start(env: &Env, options: NodeOptions) -> Result<Node, Failure> {
        let running = env.enter(Running::start(env.clone(), options)).await?;
        Ok(Node { env: env.clone(), running })
    }

    pub fn address(&self) -> &str {
        match &self.running {
            Running::Master(master) => master.address(),
            Running::Server(server) => server.address(),
        }
    }

    /// Whether it belongs to a cluster: a new master once the masters have found each other, a region server once they
    /// have taken it in.
    pub fn is_ready(&self) -> bool {
        match &self.running {
            Running::Master(master) => master.cluster().is_some(),
            Running::Server(server) => server.id().is_some(),
        }
    }

    /// Completes with the reason when the node cannot go on.
    pub async fn failed(&self) -> String {
        match &self.running {
            Running::Master(master) => master.stopped().await,
            Running::Server(server) => format!(
                "the masters refuse this server: {}. Give it another data folder, or other masters",
                server.refused().await
            ),
        }
    }

    pub async fn stop(self, how: Stop) {
        self.env.enter(self.running.stop(how)).await
    }
}

impl Running {
    async fn start(env: Env, options: NodeOptions) -> Result<Running, Failure> {
        let NodeOptions { kind, listen, masters, secret, server } = options;
        match kind {
            Kind::Server => {
                let defaults = ServerOptions::new(listen, masters.into_values().collect());
                let options = ServerOptions {
                    secret,
                    advertise: server.advertise,
                    segment_bytes: server.segment_size.unwrap_or(defaults.segment_bytes),
                    memory_bytes: memory_bytes(server.memory, defaults.memory_bytes),
                    reserve_bytes: server.disk_reserve.unwrap_or(defaults.reserve_bytes),
                    compact_bytes_per_second: server.compaction_rate.unwrap_or(defaults.compact_bytes_per_second),
                    ..defaults
                };
                Server::start(env, options).await.map(Running::Server).map_err(Failure::failed)
            }
            Kind::Master { id } => {
                let options = MasterNodeOptions { listen: Some(listen), secret, ..MasterNodeOptions::new(id, masters) };
                MasterNode::start(env, options).await.map(Running::Master).map_err(Failure::failed)
            }
        }
    }

    async fn stop(self, how: Stop) {
        match self {
            Running::Master(master) => master.stop().await,
            Running::Server(server) => server.stop(how).await,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Master { id } => write!(f, "master-{id}"),
            Kind::Server => f.write_str("server"),
        }
    }
}
