//! Steadfast, a distributed key-value database.
