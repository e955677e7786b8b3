//! Executable specifications and checkers.
