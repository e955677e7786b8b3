//! What the program says of itself, on standard error.

use crate::shell::failure::Failure;
use std::io;
use tracing_subscriber::EnvFilter;

pub fn start(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::builder().parse(filter).map_err(Failure::usage)?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    subscriber.try_init().map_err(Failure::failed)
}
