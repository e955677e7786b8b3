//! The production backend.
