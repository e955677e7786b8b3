//! `steadfast size`: what a table will take of memory and disk, by a formula that is printed with the answer.
//!
//! The terms are the formats': a record's header and key, its frame's share, its line in the hint file. What cannot be known
//! before the load is stated as an assumption and can be set. A test loads a table and holds the answer against it.

use crate::region::Salt;
use crate::shell::args::{SaltName, Size};
use crate::shell::failure::Failure;
use crate::shell::output::{self, count, print, print_json, size};
use serde::Serialize;
use storage::limits::{INDEX_GRANULE_BITS, INDEX_HASH_BITS_MIN, INDEX_LOCATION_BITS, SEGMENT_BYTES_DEFAULT};

/// Of the index, on average over a region's growth, measured at 10 million keys.
const INDEX_BYTES_PER_KEY: f64 = 5.6;
/// What the chunks of a server's index heap leave unused, measured.
const INDEX_SLACK_BYTES: u64 = 64 << 10;
/// What a region takes on each of its servers with nothing in it.
const REGION_BYTES: u64 = 64 << 10;
/// Session number, request number and floor, and the record's header.
const SESSION_RECORD_BYTES: f64 = 36.0;
/// Of one operation's outcome in a session record.
const OUTCOME_BYTES: f64 = 1.0;
/// Regions are recommended to hold at most so many keys, so that reads for absent keys rarely find something by chance ...
const REGION_KEYS_MAX: u64 = 1 << (INDEX_HASH_BITS_MIN - 6);
/// ... and so many bytes, half of what an index can name.
const REGION_DISK_BYTES_MAX: u64 = 1 << (INDEX_LOCATION_BITS + INDEX_GRANULE_BITS - 1);

#[derive(Debug, Serialize)]
struct Answer {
    regions: u64,
    /// Of one record in one replica, with its share of its frame.
    record_disk_bytes: f64,
    /// Of all replicas: hint files of the segments that are full.
    hint_bytes: u64,
    /// Of all replicas, with nothing overwritten.
    loaded_disk_bytes: u64,
    /// Of all replicas, with as much dead as compaction lets be.
    disk_bytes_max: u64,
    index_bytes: u64,
    /// Index, and what regions take on all their servers.
    memory_bytes: u64,
}

pub fn run(command: &Size) -> Result<(), Failure> {
    let answer = answer(command);
    if command.output.json {
        return Ok(print_json(&answer)?);
    }
    Ok(print(text(command, &answer))?)
}

fn answer(command: &Size) -> Answer {
    let live_share = 1.0 - command.dead_share.share();
    let record_disk_bytes = record_disk_bytes(command);
    let live = command.keys as f64 * record_disk_bytes;
    let most = live / live_share;
    let by_keys = command.keys.div_ceil(REGION_KEYS_MAX);
    let by_bytes = (most / REGION_DISK_BYTES_MAX as f64).ceil() as u64;
    let regions = command.regions.unwrap_or(by_keys.max(by_bytes).max(1));
    let copies = command.factor as u64;
    let segments_bytes = 2 * SEGMENT_BYTES_DEFAULT * regions;
    let full_segments = (live / regions as f64 / SEGMENT_BYTES_DEFAULT as f64).floor() * regions as f64;
    let hinted_keys = full_segments * SEGMENT_BYTES_DEFAULT as f64 / record_disk_bytes;
    let hint_bytes = (hinted_keys * storage::HINT_ENTRY_LEN as f64) as u64;
    let hint_bytes_max = (hint_bytes as f64 / live_share) as u64;
    let index_bytes = (command.keys as f64 * INDEX_BYTES_PER_KEY) as u64 + command.servers * INDEX_SLACK_BYTES;
    Answer {
        regions,
        record_disk_bytes,
        hint_bytes: copies * hint_bytes,
        loaded_disk_bytes: copies * (live as u64 + hint_bytes),
        disk_bytes_max: copies * (most as u64 + hint_bytes_max + segments_bytes),
        index_bytes,
        memory_bytes: index_bytes + regions * copies * REGION_BYTES,
    }
}

fn salt_bytes(command: &Size) -> usize {
    command.salt.map_or(0, |SaltName::Xxh32| Salt::BYTES)
}

fn record_disk_bytes(command: &Size) -> f64 {
    let record = (storage::RECORD_HEADER_LEN + salt_bytes(command)) as u64 + command.key_bytes + command.value_bytes;
    let request = storage::FRAME_HEADER_LEN as f64 + SESSION_RECORD_BYTES;
    record as f64 + OUTCOME_BYTES + request / command.batch as f64
}

fn text(command: &Size, answer: &Answer) -> String {
    let mut table = output::Table::new(&["what", "bytes", "how it is reckoned"]);
    let mut row = |what: &str, bytes: u64, how: String| table.row(vec![what.into(), size(bytes), how]);
    let (keys, factor, share) = (command.keys, command.factor, command.dead_share);
    let salt = salt_bytes(command);
    row(
        "one record on disk",
        answer.record_disk_bytes.round() as u64,
        format!(
            "{} header + {} key + {salt} salt + {} value + {OUTCOME_BYTES} outcome + ({} frame + {SESSION_RECORD_BYTES} session) / {} a batch",
            storage::RECORD_HEADER_LEN,
            command.key_bytes,
            command.value_bytes,
            storage::FRAME_HEADER_LEN,
            command.batch
        ),
    );
    row("hint files", answer.hint_bytes, format!("{} × {factor} × keys in full segments", storage::HINT_ENTRY_LEN));
    row("disk, just loaded", answer.loaded_disk_bytes, format!("{factor} replicas × {keys} keys × one record + hints"));
    row(
        "disk, at most",
        answer.disk_bytes_max,
        format!(
            "({factor} × {keys} × one record + hints) / (1 − {share} dead) + {factor} × {} × 2 segments of {}",
            count(answer.regions, "region"),
            size(SEGMENT_BYTES_DEFAULT)
        ),
    );
    row(
        "index, in memory",
        answer.index_bytes,
        format!(
            "{keys} × {INDEX_BYTES_PER_KEY} + {} × {}, at the primaries only",
            count(command.servers, "server"),
            size(INDEX_SLACK_BYTES)
        ),
    );
    row(
        "memory",
        answer.memory_bytes,
        format!("index + {} × {factor} × {}; caches come on top", count(answer.regions, "region"), size(REGION_BYTES)),
    );
    format!(
        "{table}\nregions: {}{}\n",
        answer.regions,
        match command.regions {
            Some(_) => String::new(),
            None => format!(
                " (at most {REGION_KEYS_MAX} keys and {} in each; more spread the work over more servers)",
                size(REGION_DISK_BYTES_MAX)
            ),
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::args::{Arguments, Command};
    use clap::Parser;

    fn asked(flags: &str) -> Size {
        parsed(flags).unwrap_or_else(|error| panic!("{error}"))
    }

    fn parsed(flags: &str) -> Result<Size, clap::Error> {
        match Arguments::try_parse_from(format!("steadfast size {flags}").split_whitespace())?.command {
            Command::Size(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_answer_is_what_its_text_says() {
        let command = asked("--keys 1000000000 --key-bytes 16 --value-bytes 100 --factor 3 --batch 100");
        let answer = answer(&command);
        assert_eq!(answer.record_disk_bytes, 12.0 + 16.0 + 100.0 + 1.0 + 1.0);
        assert_eq!(answer.loaded_disk_bytes, 3 * 130 * 1_000_000_000 + answer.hint_bytes);
        assert!((0.98..1.0).contains(&(answer.hint_bytes as f64 / 96e9)), "{answer:?}");
        assert_eq!(answer.regions, 60);
        let segments = 3 * 60 * 2 * SEGMENT_BYTES_DEFAULT;
        assert!(answer.disk_bytes_max.abs_diff(2 * answer.loaded_disk_bytes + segments) < 10, "{answer:?}");
        assert_eq!(answer.index_bytes, 5_600_000_000 + 3 * INDEX_SLACK_BYTES);
        let text = text(&command, &answer);
        for part in ["5.2 GiB", "regions: 60", "(1 − 0.5 dead)"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for share in ["0", "1", "-1", "NaN"] {
            assert!(parsed(&format!("--keys 10 --value-bytes 1 --dead-share={share}")).is_err(), "{share}");
        }
    }

    #[test]
    fn long_records_ask_for_regions_by_their_bytes() {
        let long = answer(&asked("--keys 1000000 --value-bytes 1048576 --factor 1"));
        assert!(long.regions > 60, "{long:?}");
        assert_eq!(answer(&asked("--keys 1000000 --value-bytes 1048576 --regions 4")).regions, 4);
    }
}
