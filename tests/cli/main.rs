//! The program as its users meet it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod cluster;
mod harness;
mod kill;
mod size;
mod usage;
