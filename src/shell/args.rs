//! Commands and flags. What `--help` says is written here.

use crate::bench::Workload;
use crate::bench::workload::Distribution;
use crate::region::{Compression, DeadShare, Salt, TableName};
use crate::shell::config::{self, ServerSettings, Settings};
use crate::shell::limits::*;
use crate::shell::records::Format;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Where `steadfast dev` puts the first region server, and where commands look for a cluster unless told.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7401";

/// Steadfast, a distributed key-value database
#[derive(Parser, Debug)]
#[command(name = "steadfast", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(
    after_help = "To begin:\n  steadfast dev                                  starts a cluster on this machine\n  \
    steadfast table create demo:users --regions 8\n  steadfast put demo:users alice 42\n  steadfast get demo:users alice"
)]
pub struct Arguments {
    /// What is logged to standard error: error, warn, info, debug, trace, or levels for parts of the program
    #[arg(long, global = true, value_name = "FILTER", value_parser = config::log_filter, help_heading = "Global options")]
    pub log: Option<String>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Dev(Dev),
    Server(Server),
    Master(Master),
    CheckConfig(CheckConfig),
    #[command(subcommand)]
    Table(Table),
    Put(Put),
    Get(Get),
    Delete(Delete),
    Cas(Cas),
    Increment(Increment),
    Append(Append),
    Import(Import),
    Export(Export),
    Status(Status),
    Size(Size),
    #[command(subcommand)]
    Bench(Bench),
    HandOver(HandOver),
    Recover(Recover),
}

/// Start a whole cluster on this machine, to try things with
///
/// The cluster lives in one folder and is found again there at the next start. Ctrl-C stops it cleanly.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast dev --data-dir /tmp/steadfast --servers 4 --masters 3")]
pub struct Dev {
    /// Folder of the cluster; made if missing
    #[arg(long, value_name = "DIR", default_value = "./steadfast-data")]
    pub data_dir: PathBuf,
    /// Region servers [default: 4, or as many as the folder holds]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=DEV_SERVERS_MAX as u64))]
    pub servers: Option<u32>,
    /// Masters, an odd number [default: 3, or as many as the folder holds]
    #[arg(long, value_name = "N", value_parser = masters_count)]
    pub masters: Option<u32>,
    /// Run each node as a process of its own
    #[arg(long)]
    pub processes: bool,
    /// Masters listen from this port + 1 on, region servers from it + 101 on [default: 7300, or as the folder says]
    #[arg(long, value_name = "PORT", value_parser = RangedU64ValueParser::<u16>::new().range(1..=DEV_PORT_BASE_MAX as u64))]
    pub port_base: Option<u16>,
    /// Write addresses, folders and process ids to this file, as JSON, once the cluster serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// How files are read and written
    #[arg(long, value_enum)]
    pub io: Option<config::Io>,
}

/// Run one region server
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  steadfast server --data-dir /data/s1 --listen 127.0.0.1:7401 --masters 1=127.0.0.1:7301\n  \
    steadfast server --config server.yaml --check-config"
)]
pub struct Server {
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub server: ServerSettings,
    #[command(flatten)]
    pub role: RoleFlags,
}

/// Run one master
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  steadfast master --id 1 --data-dir /data/m1 --listen 127.0.0.1:7301 --masters 1=127.0.0.1:7301\n  \
    steadfast master --config master.yaml"
)]
pub struct Master {
    /// Which of --masters this is
    #[arg(long, value_name = "ID", value_parser = config::master_id)]
    pub id: Option<u64>,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub role: RoleFlags,
}

#[derive(Args, Debug)]
pub struct RoleFlags {
    /// YAML file with these settings; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the settings and start nothing
    #[arg(long)]
    pub check_config: bool,
    /// Stop when standard input ends: with the process that started this one
    #[arg(long)]
    pub exit_with_stdin: bool,
}

/// Check a settings file and start nothing
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast check-config server.yaml")]
pub struct CheckConfig {
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// How a command finds its cluster.
#[derive(Args, Clone, Debug)]
pub struct Connection {
    /// Any node of the cluster, or several with commas between
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_ADDRESS, value_delimiter = ',', value_parser = config::address)]
    pub connect: Vec<String>,
    /// File with the cluster's secret, where it has one
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// How long to try before giving up, for example 500ms or 2min
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = config::duration)]
    pub timeout: Duration,
}

/// How keys and values are written on the command line.
#[derive(Args, Clone, Copy, Debug)]
pub struct BytesForm {
    /// How keys and values are written, here and in the answer
    #[arg(long, value_enum, default_value_t = Encoding::Text)]
    pub encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    Text,
    Hex,
    Base64,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// Create, list, describe and drop tables
#[derive(Subcommand, Debug)]
pub enum Table {
    Create(TableCreate),
    List(TableList),
    Describe(TableDescribe),
    Drop(TableDrop),
}

/// Create a table
///
/// A table is cut into regions by key. With --salt keys spread evenly over any number of regions; without it, --regions
/// cuts the space of all bytes evenly, and --split says where to cut for the keys you have.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  steadfast table create demo:users --regions 16 --factor 3 --salt xxh32\n  \
    steadfast table create demo:names --split g --split n --split t --durability buffered")]
pub struct TableCreate {
    /// NAMESPACE:TABLE
    #[arg(value_name = "NS:TABLE")]
    pub name: TableName,
    /// Number of regions [default: 1]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=16_384))]
    pub regions: Option<u32>,
    /// First key of a further region; may be given many times
    #[arg(long, value_name = "KEY", conflicts_with = "regions")]
    pub split: Vec<String>,
    /// Replicas of each region
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub factor: u8,
    /// Refuse writes while fewer replicas are in sync [default: 2 of 3, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    pub min_in_sync: Option<u8>,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value_t = Durability::Synced)]
    pub durability: Durability,
    /// Spread keys by a hash of each
    #[arg(long, value_enum)]
    pub salt: Option<SaltName>,
    /// Store values compressed where that makes them shorter
    #[arg(long, value_enum, default_value_t = CompressionName::None)]
    pub compression: CompressionName,
    /// Compact segments when this part of them is dead: the log takes about the live bytes / (1 - SHARE)
    #[arg(long, value_name = "SHARE", default_value_t = DeadShare::DEFAULT)]
    pub dead_share: DeadShare,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Every in-sync replica has flushed it to its disk
    Synced,
    /// Every in-sync replica has it in memory; flushed every 100 ms
    Buffered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SaltName {
    Xxh32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressionName {
    None,
    Lz4,
}

impl From<CompressionName> for Compression {
    fn from(name: CompressionName) -> Compression {
        match name {
            CompressionName::None => Compression::None,
            CompressionName::Lz4 => Compression::Lz4,
        }
    }
}

impl From<SaltName> for Salt {
    fn from(name: SaltName) -> Salt {
        match name {
            SaltName::Xxh32 => Salt::Xxh32,
        }
    }
}

impl From<Durability> for crate::region::Durability {
    fn from(durability: Durability) -> crate::region::Durability {
        match durability {
            Durability::Synced => crate::region::Durability::Synced,
            Durability::Buffered => crate::region::Durability::Buffered,
        }
    }
}

/// List all tables
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast table list --json")]
pub struct TableList {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// Show a table's settings and where its regions are
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast table describe demo:users")]
pub struct TableDescribe {
    /// NAMESPACE:TABLE
    #[arg(value_name = "NS:TABLE")]
    pub name: TableName,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// Drop a table and all its data
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast table drop demo:users")]
pub struct TableDrop {
    /// NAMESPACE:TABLE
    #[arg(value_name = "NS:TABLE")]
    pub name: TableName,
    #[command(flatten)]
    pub connection: Connection,
}

/// Which record.
#[derive(Args, Debug)]
pub struct RecordOf {
    /// NAMESPACE:TABLE
    #[arg(value_name = "NS:TABLE")]
    pub table: TableName,
    #[arg(value_name = "KEY")]
    pub key: String,
}

/// Write a value
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  steadfast put demo:users alice 42\n  steadfast put demo:users photo --file photo.jpg\n  \
    steadfast put demo:users minus -- -42"
)]
pub struct Put {
    #[command(flatten)]
    pub record: RecordOf,
    #[arg(
        value_name = "VALUE",
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    pub value: Option<String>,
    /// Take the value from this file, byte for byte (`-`: from standard input)
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub connection: Connection,
}

/// Print a value; exit with status 1 if there is none
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  steadfast get demo:users alice\n  steadfast get demo:users photo --raw > photo.jpg"
)]
pub struct Get {
    #[command(flatten)]
    pub record: RecordOf,
    /// Print the value's bytes alone, without a line's end
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// Delete a record
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast delete demo:users alice")]
pub struct Delete {
    #[command(flatten)]
    pub record: RecordOf,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub connection: Connection,
}

/// Compare and set: write a value only if the present one is as expected
///
/// Exits with status 1 and says what the value is when it is another.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  steadfast cas demo:users alice 42 43\n  steadfast cas demo:users bob --absent 1\n  \
    steadfast cas demo:users alice 43 --delete"
)]
#[command(
    override_usage = "steadfast cas NS:TABLE KEY EXPECTED NEW\n       steadfast cas NS:TABLE KEY --absent NEW\n       \
    steadfast cas NS:TABLE KEY EXPECTED --delete"
)]
pub struct Cas {
    #[command(flatten)]
    pub record: RecordOf,
    /// The expected and the new value
    #[arg(value_name = "VALUES", num_args = 1..=2, required = true, allow_negative_numbers = true)]
    pub values: Vec<String>,
    /// Expect that there is no record
    #[arg(long, conflicts_with = "delete")]
    pub absent: bool,
    /// Delete the record instead of writing a value
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub connection: Connection,
}

/// Add to a value that is a decimal number, and print the sum
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  steadfast increment demo:counters visits\n  steadfast increment demo:counters stock -3"
)]
pub struct Increment {
    #[command(flatten)]
    pub record: RecordOf,
    #[arg(value_name = "DELTA", default_value_t = 1, allow_negative_numbers = true)]
    pub delta: i64,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub connection: Connection,
}

/// Append to a value, and print its new length
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast append demo:logs monday 'one more line'")]
pub struct Append {
    #[command(flatten)]
    pub record: RecordOf,
    #[arg(value_name = "SUFFIX", allow_negative_numbers = true)]
    pub suffix: String,
    #[command(flatten)]
    pub form: BytesForm,
    #[command(flatten)]
    pub connection: Connection,
}

/// Write a file's records into a table
///
/// Lines that are no records are reported and skipped. An import that stopped may be run again from the start: writing a
/// record twice is the same as writing it once. Of lines with the same key the last wins. With --check nothing is written:
/// each record is read by its key, and one that is missing or has another value is a line in error.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  steadfast import demo:users --format tsv users.tsv\n  \
    steadfast import demo:users --format tsv users.tsv --check\n  \
    zcat users.jsonl.gz | steadfast import demo:users --format jsonl --errors-file wrong.txt")]
pub struct Import {
    /// NAMESPACE:TABLE
    #[arg(value_name = "NS:TABLE")]
    pub table: TableName,
    /// File to read [default: standard input]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How records are written
    #[arg(long, value_enum)]
    pub format: Format,
    /// Write nothing: compare the file with the table, record by record
    #[arg(long)]
    pub check: bool,
    /// Stop when more lines than this are in error
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub errors_max: u64,
    /// Write each line in error to this file: its number, what is wrong, its content, with tabs between
    #[arg(long, value_name = "FILE")]
    pub errors_file: Option<PathBuf>,
    /// Stop when nothing could be written (or read) for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = config::duration)]
    pub patience: Duration,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// Print a table's records, in a format that import reads
///
/// Each record that is there from beginning to end is printed, in no particular order; one that is written meanwhile may
/// be printed with its old value, its new one, or both.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  steadfast export demo:users > users.tsv\n  \
    steadfast export demo:users --format jsonl --to users.jsonl")]
pub struct Export {
    /// NAMESPACE:TABLE
    #[arg(value_name = "NS:TABLE")]
    pub table: TableName,
    /// How records are written
    #[arg(long, value_enum, default_value_t = Format::Tsv)]
    pub format: Format,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    #[command(flatten)]
    pub connection: Connection,
}

/// Show the cluster's masters, servers and tables
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast status --json")]
pub struct Status {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// Say what a table will take of memory and disk
///
/// Asks no cluster. The formula is printed with the answer.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  steadfast size --keys 1000000000 --value-bytes 100\n  \
    steadfast size --keys 50000000 --key-bytes 24 --value-bytes 1000 --factor 2 --dead-share 0.3 --json")]
pub struct Size {
    /// Number of records
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000_000_000))]
    pub keys: u64,
    /// Length of a key
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<u64>::new().range(1..=storage::limits::KEY_BYTES_MAX as u64))]
    pub key_bytes: u64,
    /// Length of a value, as it is stored
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(0..=1 << 29))]
    pub value_bytes: u64,
    /// Replicas of each region
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub factor: u8,
    /// Part of the log that may be dead before it is compacted
    #[arg(long, value_name = "SHARE", default_value_t = DeadShare::DEFAULT)]
    pub dead_share: DeadShare,
    /// Records written by one request
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = RangedU64ValueParser::<u64>::new().range(1..=65_536))]
    pub batch: u64,
    /// Region servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<u64>::new().range(1..=100_000))]
    pub servers: u64,
    /// Regions, if not as many as are recommended
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..=16_384))]
    pub regions: Option<u64>,
    /// Keys are spread by a hash of each
    #[arg(long, value_enum)]
    pub salt: Option<SaltName>,
    #[command(flatten)]
    pub output: Output,
}

/// Measure a cluster
#[derive(Subcommand, Debug)]
pub enum Bench {
    #[command(subcommand)]
    Ycsb(Ycsb),
}

/// The workloads of YCSB
#[derive(Subcommand, Debug)]
pub enum Ycsb {
    Load(YcsbLoad),
    Run(YcsbRun),
}

#[derive(Args, Debug)]
pub struct YcsbWorkload {
    /// NAMESPACE:TABLE
    #[arg(long, value_name = "NS:TABLE", default_value = "bench:ycsb")]
    pub table: TableName,
    /// a, b, c, d, f, atalanta-1col or atalanta-batch
    #[arg(long, default_value = "a", value_parser = Workload::named)]
    pub workload: Workload,
    /// Records of the table [default: the workload's]
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Records that one operation is about [default: the workload's]
    #[arg(long, value_name = "N")]
    pub batch: Option<u64>,
    /// Which records are asked for: uniform, zipfian, zipf-exact or latest [default: the workload's]
    #[arg(long)]
    pub distribution: Option<Distribution>,
    /// Operations under way at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub workers: usize,
    /// Operations a second; latencies then count from when each should have begun [default: as many as possible]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Of all that is drawn at random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Debug)]
pub struct YcsbOutput {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    /// Answer in the lines that YCSB prints
    #[arg(long, conflicts_with = "json")]
    pub ycsb: bool,
}

/// Fill a table, which is created if it is missing, and verify every record
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast bench ycsb load --workload a --records 100000")]
pub struct YcsbLoad {
    #[command(flatten)]
    pub workload: YcsbWorkload,
    /// Regions of a table that is created
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<u32>::new().range(1..=16_384))]
    pub regions: u32,
    /// Replicas of each region of a table that is created
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub factor: u8,
    /// When a write to a table that is created is acknowledged
    #[arg(long, value_enum, default_value_t = Durability::Synced)]
    pub durability: Durability,
    #[command(flatten)]
    pub output: YcsbOutput,
    #[command(flatten)]
    pub connection: Connection,
}

/// Run a workload over a loaded table
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast bench ycsb run --workload a --records 100000 --duration 30s --rate 5000")]
pub struct YcsbRun {
    #[command(flatten)]
    pub workload: YcsbWorkload,
    /// Operations to carry out [default: 1000, or as many as --duration allows]
    #[arg(long, value_name = "N")]
    pub operations: Option<u64>,
    /// How long to run
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub output: YcsbOutput,
    #[command(flatten)]
    pub connection: Connection,
}

/// Give a region's lead to another of its in-sync replicas
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast hand-over 12 3        (numbers as `table describe` shows them)")]
pub struct HandOver {
    /// The region's number
    pub region: u64,
    /// The number of the server that shall lead
    pub server: u64,
    #[command(flatten)]
    pub connection: Connection,
}

/// Make a region available again that lost its in-sync replicas, giving up what the survivor does not hold
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  steadfast recover 12 --accept-loss --survivor 3")]
pub struct Recover {
    /// The region's number
    pub region: u64,
    /// Say that acknowledged writes may be lost: those that the survivor does not hold
    #[arg(long, required = true)]
    pub accept_loss: bool,
    /// The number of the server whose copy the region goes on with
    #[arg(long, value_name = "SERVER", required = true)]
    pub survivor: u64,
    #[command(flatten)]
    pub connection: Connection,
}

fn masters_count(text: &str) -> Result<u32, String> {
    let wrong = || format!("write an odd number from 1 to {DEV_MASTERS_MAX}");
    text.parse().ok().filter(|n| n % 2 == 1 && *n <= DEV_MASTERS_MAX).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_commands_hang_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_text_and_an_example() {
        fn check(command: &clap::Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} says nothing of itself");
            for below in command.get_subcommands() {
                check(below, &format!("{path} {}", below.get_name()));
            }
            if !command.has_subcommands() {
                let example = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
                assert!(example.contains(&format!("{path} ")), "{path} has no example");
            }
        }
        check(&Arguments::command(), "steadfast");
    }

    #[test]
    fn the_default_address_is_the_first_server_of_dev() {
        let port = crate::shell::dev::layout::PORT_BASE + DEV_SERVER_PORTS_OFFSET;
        assert_eq!(DEFAULT_ADDRESS, format!("127.0.0.1:{port}"));
    }
}
