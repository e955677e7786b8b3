//! The command line.

pub mod args;
pub mod config;
pub mod dev;
pub mod failure;
pub mod limits;
pub mod lines;
pub mod output;
pub mod progress;
pub mod records;
pub mod suggest;
