//! The region store: one append-only log, and the indexes over it.
//!
//! A region's folder on one replica:
//! ```text
//! 000001.seg …   the log: segments of frames of records      segment.rs, frame.rs, record.rs
//! 000001.1.seg …  the same once compacted, with the generation  span.rs
//! 000001.hint …  what an index needs of a sealed segment     hint.rs
//! state          whose folder it is, and the epoch           state.rs
//! durable        evidence of how far the log was flushed     state.rs
//! clean          the mark of a clean stop                    state.rs
//! fenced         a write or a flush failed                   state.rs
//! ```
//! [`Log`] keeps the log, and is all that a backup needs. [`Store`] is a primary's view of it by key.

mod cache;
pub mod compaction;
mod compression;
mod error;
mod files;
mod folder;
mod frame;
mod hint;
pub mod ids;
pub mod index;
pub mod limits;
mod log;
mod record;
mod recovery;
mod seed;
mod segment;
pub mod small_file;
mod span;
mod state;
mod store;
#[cfg(test)]
mod testing;
mod verify;
mod write;

pub use cache::{ReadCache, ReadStats};
pub use compression::Compression;
pub use error::{Reject, StorageError};
pub use files::FileCache;
pub use frame::{
    FRAME_HEADER_LEN, Frame, FrameError, FrameHeader, FrameRecord, FrameRecords, Position, SplitFrames, split_frames,
};
pub use hint::ENTRY_LEN as HINT_ENTRY_LEN;
pub use ids::{Epoch, Mark, RegionId, SegmentId, Seqno};
pub use log::{
    Chunk, ChunkJob, ClosedFrame, FlushJob, Flushed, FrameRoom, Log, LogOptions, LogStats, NoteJob, OpenFrame, Piece,
    Recovery, SealJob, Sealed, Taken, destroy,
};
pub use record::{Location, OwnedRecord, RECORD_HEADER_LEN, Record};
pub use seed::Identity;
pub use store::{
    Applied, Entry, FrameJob, Hold, Lookup, Mover, Planner, ReadJob, ScanCursor, ScanJob, ScanPage, Scanned, Seen,
    SessionTable, SettleJob, Settled, Space, Store, View, read_all,
};
pub use verify::{Report, verify};
pub use write::{WriteJob, Written};
