//! The simulated backend: its contract, its determinism, and that each fault does what it says.

mod clock;
mod contract;
mod determinism;
mod disk;
mod world;
