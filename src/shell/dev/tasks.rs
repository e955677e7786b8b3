//! Nodes as tasks of this process, each with its own folder, lock, files and connections: they meet over the network only.

use crate::node::Stop;
use crate::shell::config::{Io, ServerSettings};
use crate::shell::dev::Plan;
use crate::shell::dev::layout::NodeName;
use crate::shell::failure::Failure;
use crate::shell::role::{Kind, Node, NodeOptions};
use env::real::Options;
use futures_util::future::{join_all, select_all};
use std::future::pending;

pub struct Tasks {
    nodes: Vec<Running>,
}

struct Running {
    name: NodeName,
    node: Node,
    failed: bool,
}

impl Tasks {
    pub async fn start(plan: &Plan) -> Result<Tasks, Failure> {
        let mut tasks = Tasks { nodes: Vec::new() };
        for node in plan.layout.nodes() {
            match start_one(plan, node).await {
                Ok(running) => tasks.nodes.push(Running { name: node, node: running, failed: false }),
                Err(failure) => {
                    tasks.stop().await;
                    return Err(Failure::Failed(format!("start {node}: {failure}")));
                }
            }
        }
        Ok(tasks)
    }

    /// Completes with what failed and why, once for each.
    pub async fn first_ended(&mut self) -> String {
        let left: Vec<&mut Running> = self.nodes.iter_mut().filter(|running| !running.failed).collect();
        if left.is_empty() {
            return pending().await;
        }
        let (ended, ..) = select_all(left.into_iter().map(|running| Box::pin(running.ended()))).await;
        ended
    }

    /// Region servers first: their last words go to the masters.
    pub async fn stop(mut self) {
        let (servers, masters): (Vec<_>, Vec<_>) =
            self.nodes.drain(..).partition(|running| matches!(running.name, NodeName::Server(_)));
        for nodes in [servers, masters] {
            join_all(nodes.into_iter().map(|running| running.node.stop(Stop::WithAll))).await;
        }
    }
}

impl Running {
    async fn ended(&mut self) -> String {
        let why = self.node.failed().await;
        self.failed = true;
        format!("{} has failed: {why}", self.name)
    }
}

async fn start_one(plan: &Plan, node: NodeName) -> Result<Node, Failure> {
    let env = env::real::open(Options {
        data_dir: plan.folder(node),
        node: node.to_string(),
        io: plan.io.unwrap_or(Io::Auto).choice(),
    })?;
    let kind = match node {
        NodeName::Master(id) => Kind::Master { id: id.into() },
        NodeName::Server(_) => Kind::Server,
    };
    let (listen, masters) = (plan.layout.address(node), plan.layout.master_map());
    Node::start(&env, NodeOptions { kind, listen, masters, secret: None, server: ServerSettings::default() }).await
}
