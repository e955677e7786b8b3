//! Every bound of this package.

/// Applications of the specification in the search over one key before the verdict is "unknown". A few seconds at most.
pub const SEARCH_STEPS_MAX: u64 = 2_000_000;

/// The same for one of the checks that make an illegal history smaller to explain it, and for all of them together. The
/// verdict no longer depends on them.
pub const EXPLAIN_CHECK_STEPS_MAX: u64 = 10_000;
pub const EXPLAIN_STEPS_MAX: u64 = 400_000;

/// How many times a history is checked again while it is made smaller.
pub const EXPLAIN_CHECKS_MAX: u32 = 400;

/// Operations drawn in an explanation, and columns of its time line.
pub const EXPLAIN_OPERATIONS_MAX: usize = 24;
pub const EXPLAIN_COLUMNS: usize = 48;

/// Bytes of a key or value shown in an explanation before it is cut.
pub const SHOWN_BYTES_MAX: usize = 40;

const _: () = assert!(EXPLAIN_CHECK_STEPS_MAX <= EXPLAIN_STEPS_MAX && EXPLAIN_STEPS_MAX <= SEARCH_STEPS_MAX);
