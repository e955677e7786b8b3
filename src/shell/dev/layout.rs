//! What a folder of `steadfast dev` holds, and where the nodes in it listen.
//!
//! ```text
//! DATA_DIR/
//!   LOCK            locked while a cluster runs from the folder; its content means nothing
//!   cluster.json    {"format": 1, "masters": 3, "servers": 4, "port_base": 7300}
//!   master-1/ ..    each master's data folder
//!   server-1/ ..    each region server's data folder
//! ```
//!
//! The masters' addresses are written into their group's log, so a folder keeps the ports it began with.

use crate::shell::failure::Failure;
use crate::shell::limits::*;
use bytes::Bytes;
use env::{Env, OpenMode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// The format of `cluster.json` and of the folder around it.
pub const FORMAT: u32 = 1;
pub const PORT_BASE: u16 = 7300;
const MASTERS: u32 = 3;
const SERVERS: u32 = 4;

const FILE: &str = "cluster.json";
const NEW_FILE: &str = "cluster.json.new";
const LOCK: &str = "LOCK";
const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub format: u32,
    pub masters: u32,
    pub servers: u32,
    pub port_base: u16,
}

/// What the user asked for; `None` where nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub masters: Option<u32>,
    pub servers: Option<u32>,
    pub port_base: Option<u16>,
}

/// A node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    Master(u32),
    Server(u32),
}

impl std::fmt::Display for NodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NodeName::Master(number) => write!(f, "master-{number}"),
            NodeName::Server(number) => write!(f, "server-{number}"),
        }
    }
}

impl Layout {
    fn new(wanted: Wanted) -> Layout {
        Layout {
            format: FORMAT,
            masters: wanted.masters.unwrap_or(MASTERS),
            servers: wanted.servers.unwrap_or(SERVERS),
            port_base: wanted.port_base.unwrap_or(PORT_BASE),
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeName> {
        (1..=self.masters).map(NodeName::Master).chain((1..=self.servers).map(NodeName::Server))
    }

    pub fn address(&self, node: NodeName) -> String {
        let port = match node {
            NodeName::Master(number) => self.port_base + number as u16,
            NodeName::Server(number) => self.port_base + DEV_SERVER_PORTS_OFFSET - 1 + number as u16,
        };
        format!("127.0.0.1:{port}")
    }

    pub fn master_map(&self) -> BTreeMap<u64, String> {
        (1..=self.masters).map(|number| (number.into(), self.address(NodeName::Master(number)))).collect()
    }

    /// Refuses what was asked for and is not what is there.
    fn agree(&self, wanted: Wanted) -> Result<(), Failure> {
        let differs = |flag, there: u32, wanted: Option<u32>| {
            wanted.filter(|&wanted| wanted != there).map(|wanted| format!("--{flag} {wanted}"))
        };
        let differences = [
            differs("masters", self.masters, wanted.masters),
            differs("servers", self.servers, wanted.servers),
            differs("port-base", self.port_base.into(), wanted.port_base.map(u32::from)),
        ];
        match differences.into_iter().flatten().next() {
            None => Ok(()),
            Some(flag) => Err(Failure::Failed(format!(
                "{flag}: the folder holds a cluster of {} masters and {} servers with port base {}. Leave the flag out, \
                 or choose another folder with --data-dir",
                self.masters, self.servers, self.port_base
            ))),
        }
    }
}

/// Takes the folder for this process, until the returned value is dropped.
pub async fn lock(env: &Env) -> io::Result<Box<dyn std::any::Any + Send + Sync>> {
    env.disk().lock(LOCK).await
}

/// The layout that the folder has, or is given now.
pub async fn find_or_make(env: &Env, wanted: Wanted) -> Result<Layout, Failure> {
    if let Some(text) = read(env).await? {
        let layout = parse(&text)?;
        layout.agree(wanted)?;
        return Ok(layout);
    }
    refuse_foreign_files(env).await?;
    let layout = Layout::new(wanted);
    write(env, &layout).await?;
    Ok(layout)
}

fn parse(text: &[u8]) -> Result<Layout, Failure> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let damaged = |error: serde_json::Error| Failure::Failed(format!("{FILE} is damaged: {error}"));
    // The format alone first: what else a newer file says is not for us to understand.
    let Format { format } = serde_json::from_slice(text).map_err(damaged)?;
    if format > FORMAT {
        return Err(Failure::Failed(format!(
            "the folder has format {format}, and this program ({}) knows formats up to {FORMAT}: use the newer program \
             that wrote it",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let layout: Layout = serde_json::from_slice(text).map_err(damaged)?;
    let in_bounds = (1..=DEV_MASTERS_MAX).contains(&layout.masters)
        && (1..=DEV_SERVERS_MAX).contains(&layout.servers)
        && (1..=DEV_PORT_BASE_MAX).contains(&layout.port_base);
    if in_bounds { Ok(layout) } else { Err(Failure::Failed(format!("{FILE} is damaged: {layout:?}"))) }
}

async fn read(env: &Env) -> io::Result<Option<Vec<u8>>> {
    let file = match env.disk().open(FILE, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = file.len().await?.min(FILE_BYTES_MAX);
    let (read, buffer) = file.read_at(vec![0; len as usize], 0).await;
    read?;
    Ok(Some(buffer))
}

async fn write(env: &Env, layout: &Layout) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(layout).expect("numbers only");
    text.push(b'\n');
    let disk = env.disk();
    let file = disk.open(NEW_FILE, OpenMode::Create).await?;
    file.truncate(0).await?;
    file.write_at(vec![Bytes::from(text)], 0).await?;
    file.sync_data().await?;
    disk.rename(NEW_FILE, FILE).await?;
    disk.sync_dir("").await
}

/// A folder with files of something else is not filled with ours.
async fn refuse_foreign_files(env: &Env) -> Result<(), Failure> {
    let entries = env.disk().list("").await?;
    match entries.iter().find(|entry| entry.name != LOCK && entry.name != NEW_FILE) {
        None => Ok(()),
        Some(entry) => Err(Failure::Failed(format!(
            "the folder holds {:?} and no {FILE}: it is no folder of `steadfast dev`. Choose an empty or a new one",
            entry.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(result: Result<impl std::fmt::Debug, Failure>, with: &str) {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(with), "{message}");
    }

    #[test]
    fn a_layout_comes_back() {
        let layout = Layout::new(Wanted { servers: Some(5), ..Wanted::default() });
        assert_eq!(parse(&serde_json::to_vec(&layout).unwrap()).unwrap(), layout);
        assert_eq!(layout.nodes().count(), 8);
        assert_eq!(layout.address(NodeName::Server(1)), "127.0.0.1:7401");
        assert_eq!(layout.master_map()[&3], "127.0.0.1:7303");
    }

    #[test]
    fn a_newer_format_is_refused_whatever_else_it_says() {
        fails(parse(br#"{"format": 255, "shards": []}"#), "format 255, and this program");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for text in ["", "{", "{}", r#"{"format": 1}"#, r#"{"format":1,"masters":0,"servers":4,"port_base":7300}"#] {
            fails(parse(text.as_bytes()), "cluster.json is damaged");
        }
    }

    #[test]
    fn another_layout_is_refused() {
        let layout = Layout::new(Wanted::default());
        assert!(layout.agree(Wanted { servers: Some(4), masters: Some(3), port_base: Some(7300) }).is_ok());
        fails(layout.agree(Wanted { servers: Some(5), ..Wanted::default() }), "--servers 5: the folder holds");
        fails(layout.agree(Wanted { masters: Some(1), ..Wanted::default() }), "--masters 1: the folder holds");
        fails(layout.agree(Wanted { port_base: Some(1), ..Wanted::default() }), "--port-base 1: the folder holds");
    }
}
