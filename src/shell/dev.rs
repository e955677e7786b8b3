//! `steadfast dev`: a whole cluster on one machine, in one folder.

pub mod layout;
