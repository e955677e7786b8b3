//! Planted bugs. A mutant is a wrong line of production code that runs only in a build with the feature `mutants` and
//! only when chosen by name, so that the simulator can be shown to find it.
//!
//! ```ignore
//! if !env::mutants::active("M01") { file.sync_data().await?; }
//! ```

#[cfg(feature = "mutants")]
static CHOSEN: std::sync::RwLock<Option<String>> = std::sync::RwLock::new(None);

/// Chooses the one mutant that is active in this process from now on.
#[cfg(feature = "mutants")]
pub fn choose(name: Option<&str>) {
    *CHOSEN.write().expect("no writer panics") = name.map(str::to_owned);
}

#[cfg(feature = "mutants")]
pub fn active(name: &str) -> bool {
    CHOSEN.read().expect("no writer panics").as_deref() == Some(name)
}

/// Always false in a build without the feature, so that the branch disappears.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn active(_name: &str) -> bool {
    false
}
