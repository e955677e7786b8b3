//! Bounds of the command line.

use std::time::Duration;

/// Masters and region servers that `steadfast dev` starts.
pub const DEV_MASTERS_MAX: u32 = 5;
pub const DEV_SERVERS_MAX: u32 = 64;
/// From `--port-base` to the first region server's port; the masters' lie between.
pub const DEV_SERVER_PORTS_OFFSET: u16 = 101;
pub const DEV_PORT_BASE_MAX: u16 = u16::MAX - DEV_SERVER_PORTS_OFFSET - DEV_SERVERS_MAX as u16;
/// One question of `steadfast dev` to the cluster that it has started.
pub const DEV_STATUS_TIME: Duration = Duration::from_millis(300);
/// How long `steadfast dev` waits for a cluster that answers ...
pub const DEV_START_TIME_MAX: Duration = Duration::from_secs(30);
/// ... and then for the regions that it held before, which may need more servers than there are.
pub const DEV_REGIONS_TIME_MAX: Duration = Duration::from_secs(10);

/// An address that neither takes nor refuses a connection for this long is left to the calls and their time.
pub const LISTENER_TIME_MAX: Duration = Duration::from_millis(500);

/// The least memory that a server is given for what it caches and indexes.
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// A clean stop that takes longer is given up, unless the settings say otherwise.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// How long the maker of a table waits for its regions to be served.
pub const TABLE_SERVED_TIME_MAX: Duration = Duration::from_secs(30);
pub const TABLE_SERVED_PAUSE: Duration = Duration::from_millis(50);

/// Records written with one call, and their bytes.
pub const IMPORT_BATCH_RECORDS_MAX: usize = 1000;
pub const IMPORT_BATCH_BYTES_MAX: usize = 4 << 20;
/// Batches on their way at once. Records of one key go through one lane, so that the last line of a key wins.
pub const IMPORT_LANES: usize = 8;
/// Chunks of lines that wait between the thread that reads and the task that parses.
pub const IMPORT_CHUNKS_MAX: usize = 4;
/// A longer line is skipped and reported. The largest value fits, in the longest way to write it.
pub const LINE_BYTES_MAX: usize = 80 << 20;
/// Errors told one by one on standard error; the rest is counted (and in full in `--errors-file`).
pub const IMPORT_ERRORS_SHOWN_MAX: u64 = 10;
/// Of a line in error this much is kept for the report.
pub const IMPORT_ERROR_CONTENT_BYTES_MAX: usize = 4096;
/// When the input pauses for this long, lanes write what they have.
pub const IMPORT_IDLE_TIME: Duration = Duration::from_millis(50);
/// A silence of the cluster longer than this is shown.
pub const IMPORT_SILENCE_SHOWN: Duration = Duration::from_secs(1);
/// Between two looks at how far an import or an export has come.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Regions scanned at once by an export.
pub const EXPORT_REGIONS_AT_ONCE: usize = 8;
/// Records asked for with one call of a scan.
pub const EXPORT_PAGE_RECORDS: u32 = 1000;
/// Pages, already in the export's format, that wait for the thread that writes.
pub const EXPORT_PAGES_MAX: usize = 16;

const _: () = assert!(DEV_MASTERS_MAX < DEV_SERVER_PORTS_OFFSET as u32);
