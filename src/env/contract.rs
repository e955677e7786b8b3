//! The promises of the traits, as tests that every backend passes.
