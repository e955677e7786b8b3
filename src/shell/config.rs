//! The settings of one node: from a YAML file, from flags, or from both (a flag wins).
//!
//! ```yaml
//! role: server                     # or: master
//! data_dir: /var/lib/steadfast
//! listen: 10.0.0.11:7401
//! masters:
//!   1: 10.0.0.1:7301
//!   2: 10.0.0.2:7301
//!   3: 10.0.0.3:7301
//! secret_file: /etc/steadfast/secret
//! ```
//!
//! A file is read whole and believed in nothing that it does not say clearly: an unknown or repeated key, a value of another
//! kind or unit, an empty file is refused with the file, the line, the key and what would be right. Nothing is started then.

mod yaml;

use crate::shell::limits::MEMORY_BYTES_MIN;
use crate::shell::suggest::nearest;
use clap::{Args, ValueEnum};
use env::real::IoChoice;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use yaml::{Entry, Node};

/// What every node has.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Folder of the node's files; made if missing
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where to listen; an address that other machines can reach needs --secret-file
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub listen: Option<String>,
    /// Every master of the cluster, for example 1=10.0.0.1:7301,2=10.0.0.2:7301,3=10.0.0.3:7301
    #[arg(long, value_name = "ID=HOST:PORT", value_delimiter = ',')]
    pub masters: Vec<MasterAddress>,
    /// File with the secret that all nodes and clients of the cluster share
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// How files are read and written
    #[arg(long, value_enum)]
    pub io: Option<Io>,
    /// How long a clean stop may take before it is given up, for example 30s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub stop_time_max: Option<Duration>,
}

/// What only a region server has.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ServerSettings {
    /// Where others find the node, if not where it listens
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
    /// Length of a log segment, for example 64MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub segment_size: Option<u64>,
    /// What cached records, indexes and buffers take together, for example 8GiB; a quarter of the machine's unless set
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u64>,
    /// Refuse writes when less than this is free on the disk, for example 1GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub disk_reserve: Option<u64>,
    /// What compactions may read and write in a second, for example 64MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub compaction_rate: Option<u64>,
}

/// A node's settings file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    pub role: Option<Role>,
    /// A master's number.
    pub id: Option<u64>,
    pub log: Option<String>,
    pub settings: Settings,
    pub server: ServerSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Master,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// io_uring where the kernel has it, threads where not
    Auto,
    /// io_uring, or the node does not start
    #[value(name = "io_uring", alias = "io-uring")]
    IoUring,
    Threads,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterAddress {
    pub id: u64,
    pub address: String,
}

/// Why a settings file is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct ConfigError {
    pub file: String,
    pub line: u64,
    pub what: String,
}

impl Settings {
    /// These settings, and `file`'s where these say nothing.
    pub fn or(self, file: Settings) -> Settings {
        Settings {
            data_dir: self.data_dir.or(file.data_dir),
            listen: self.listen.or(file.listen),
            masters: if self.masters.is_empty() { file.masters } else { self.masters },
            secret_file: self.secret_file.or(file.secret_file),
            io: self.io.or(file.io),
            stop_time_max: self.stop_time_max.or(file.stop_time_max),
        }
    }

    pub fn master_map(&self) -> BTreeMap<u64, String> {
        self.masters.iter().map(|master| (master.id, master.address.clone())).collect()
    }
}

impl Io {
    pub fn choice(self) -> IoChoice {
        match self {
            Io::Auto => IoChoice::Auto,
            Io::IoUring => IoChoice::IoUring,
            Io::Threads => IoChoice::Threads,
        }
    }
}

impl ServerSettings {
    pub fn or(self, file: ServerSettings) -> ServerSettings {
        ServerSettings {
            advertise: self.advertise.or(file.advertise),
            segment_size: self.segment_size.or(file.segment_size),
            memory: self.memory.or(file.memory),
            disk_reserve: self.disk_reserve.or(file.disk_reserve),
            compaction_rate: self.compaction_rate.or(file.compaction_rate),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Master => "master",
            Role::Server => "server",
        })
    }
}

impl fmt::Display for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.id, self.address)
    }
}

impl FromStr for MasterAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MasterAddress, String> {
        let (id, to) = text.split_once('=').ok_or("write ID=HOST:PORT, for example 1=10.0.0.1:7301")?;
        Ok(MasterAddress { id: master_id(id)?, address: address(to)? })
    }
}

const KEYS: [&str; 14] = [
    "role",
    "id",
    "data_dir",
    "listen",
    "advertise",
    "masters",
    "secret_file",
    "log",
    "io",
    "segment_size",
    "memory",
    "disk_reserve",
    "compaction_rate",
    "stop_time_max",
];

/// Keys that mean something to one role only.
const OWNED: [(&str, Role); 6] = [
    ("id", Role::Master),
    ("advertise", Role::Server),
    ("segment_size", Role::Server),
    ("memory", Role::Server),
    ("disk_reserve", Role::Server),
    ("compaction_rate", Role::Server),
];

/// What the text of a settings file says; `name` is for errors.
pub fn parse(name: &str, text: &str) -> Result<File, ConfigError> {
    let error = |line, what| ConfigError { file: name.to_owned(), line, what };
    let entries = yaml::read(text).map_err(|wrong| error(wrong.line, wrong.what))?;
    let mut file = File::default();
    for entry in &entries {
        set(&mut file, entry).map_err(|what| error(entry.line, what))?;
    }
    for entry in &entries {
        let owner = OWNED.iter().find(|(key, _)| *key == entry.key).map(|(_, owner)| *owner);
        if let (Some(role), Some(owner)) = (file.role, owner)
            && role != owner
        {
            return Err(error(entry.line, format!("key '{}': belongs to a {owner}, and this is a {role}", entry.key)));
        }
    }
    Ok(file)
}

fn set(file: &mut File, entry: &Entry) -> Result<(), String> {
    if !KEYS.contains(&entry.key.as_str()) {
        return Err(unknown(&entry.key));
    }
    set_value(file, &entry.key, &entry.value).map_err(|what| format!("key '{}': {what}", entry.key))
}

fn set_value(file: &mut File, key: &str, value: &Node) -> Result<(), String> {
    let (settings, server) = (&mut file.settings, &mut file.server);
    match key {
        "role" => file.role = Some(role(value.text("a role")?)?),
        "id" => file.id = Some(master_id(&value.scalar("a number")?)?),
        "log" => file.log = Some(log_filter(value.text("a log filter")?)?),
        "data_dir" => settings.data_dir = Some(value.text("a path")?.into()),
        "listen" => settings.listen = Some(address(value.text("an address")?)?),
        "advertise" => server.advertise = Some(address(value.text("an address")?)?),
        "masters" => settings.masters = masters(value)?,
        "secret_file" => settings.secret_file = Some(value.text("a path")?.into()),
        "io" => settings.io = Some(io(value.text("a way of input and output")?)?),
        "segment_size" => server.segment_size = Some(size(&value.scalar("a size")?)?),
        "memory" => server.memory = Some(memory(&value.scalar("a size")?)?),
        "disk_reserve" => server.disk_reserve = Some(size(&value.scalar("a size")?)?),
        "compaction_rate" => server.compaction_rate = Some(size(&value.scalar("a size")?)?),
        "stop_time_max" => settings.stop_time_max = Some(duration(&value.scalar("a time")?)?),
        _ => unreachable!("{key} is one of KEYS"),
    }
    Ok(())
}

fn unknown(key: &str) -> String {
    match nearest(key, KEYS) {
        Some(near) => format!("unknown key '{key}': did you mean '{near}'?"),
        None => format!("unknown key '{key}': the keys are {}", KEYS.join(", ")),
    }
}

fn role(text: &str) -> Result<Role, String> {
    match text {
        "master" => Ok(Role::Master),
        "server" => Ok(Role::Server),
        _ => Err(format!("'{text}' is no role: write master or server")),
    }
}

fn io(text: &str) -> Result<Io, String> {
    Io::from_str(text, false).map_err(|_| format!("'{text}' is none: write auto, io_uring or threads"))
}

fn masters(value: &Node) -> Result<Vec<MasterAddress>, String> {
    let entries = value.map("the masters' numbers with their addresses")?;
    entries.iter().map(master).collect()
}

fn master(entry: &Entry) -> Result<MasterAddress, String> {
    let of_master = |what| format!("master {} (line {}): {what}", entry.key, entry.line);
    let to = entry.value.text("an address").and_then(address).map_err(of_master)?;
    Ok(MasterAddress { id: master_id(&entry.key).map_err(of_master)?, address: to })
}

pub fn master_id(text: &str) -> Result<u64, String> {
    let id = text.parse().ok().filter(|&id| id > 0);
    id.ok_or_else(|| format!("'{text}' is no master's number: write a whole number from 1 on"))
}

/// `HOST:PORT`, where an IPv6 host stands in brackets.
pub fn address(text: &str) -> Result<String, String> {
    let wrong = |why: &str| format!("'{text}' is no address: {why}, for example 127.0.0.1:7401");
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("write HOST:PORT"))?;
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(wrong("write HOST:PORT"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(wrong("put an IPv6 host in brackets"));
    }
    port.parse::<u16>().map_err(|_| wrong("the port is a number to 65535"))?;
    Ok(text.to_owned())
}

/// A time: `500ms`, `30 s`, `2min`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000)];
    let ms = quantity(text, &units);
    ms.map(Duration::from_millis)
        .ok_or_else(|| format!("'{text}' is no time: write a whole number and ms, s, min or h, for example 30s"))
}

/// A number of bytes: `4096B`, `64 MiB`, `1GiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let units = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    quantity(text, &units).ok_or_else(|| {
        format!("'{text}' is no size: write a whole number and B, KiB, MiB, GiB or TiB, for example 64MiB")
    })
}

/// A number of bytes that a server can work with.
pub fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < MEMORY_BYTES_MIN => Err(format!("'{text}' is too little memory: write 16MiB or more")),
        bytes => Ok(bytes),
    }
}

/// A whole number followed by a unit, in the smallest unit.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let (_, factor) = units.iter().find(|(unit, _)| *unit == text[digits..].trim())?;
    number.checked_mul(*factor)
}

/// A filter of what is logged: a level, or levels for parts of the program.
pub fn log_filter(text: &str) -> Result<String, String> {
    let wrong = |_| format!("'{text}' is no log filter: write error, warn, info, debug or trace");
    tracing_subscriber::EnvFilter::builder().parse(text).map_err(wrong)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
