//! Bounds of the load generator.

/// Operations under way at once.
pub const WORKERS_MAX: usize = 4096;

/// Records in one operation.
pub const BATCH_RECORDS_MAX: u64 = 10_000;

pub const FIELDS_MAX: u32 = 1000;

/// A field holds at least the number that tells which write made it.
pub const FIELD_BYTES_MIN: u32 = 8;
pub const FIELD_BYTES_MAX: u32 = 1 << 20;

/// Records read at once while a load is verified.
pub const VERIFY_BATCH_RECORDS: u64 = 100;

/// Keys named when records are missing.
pub const MISSING_SHOWN_MAX: usize = 10;

/// Significant decimal digits of a recorded latency.
pub const LATENCY_DIGITS: u8 = 3;

const _: () = assert!(VERIFY_BATCH_RECORDS <= BATCH_RECORDS_MAX);
