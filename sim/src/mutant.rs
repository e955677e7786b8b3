//! Planted bugs: each must be found by the swarm, or the swarm is worth nothing.
//!
//! A mutant is a wrong line of production code behind `env::mutants::active`, in a build with the feature `mutants`. One is
//! chosen for a process; seeds of the profiles that aim at it are run until one is judged a violation.

use crate::plan::Profile;
#[cfg(feature = "mutants")]
use crate::{
    plan::Plan,
    run::{self, Verdict},
};
use std::process::ExitCode;

pub struct Mutant {
    pub name: &'static str,
    pub story: &'static str,
    /// Where it is looked for, in turn.
    pub profiles: &'static [Profile],
}

pub const ALL: &[Mutant] = &[
    Mutant {
        name: "M01",
        story: "a backup acknowledges before its flush completes",
        profiles: &[Profile::Power, Profile::Swarm],
    },
    Mutant { name: "M02", story: "a backup takes frames whatever their epoch", profiles: &[Profile::LeaseClock] },
    Mutant { name: "M03", story: "a lease counts from the receipt of the answer", profiles: &[Profile::LeaseClock] },
    Mutant { name: "M03b", story: "the grace period is no longer than the lease", profiles: &[Profile::LeaseClock] },
    Mutant {
        name: "M05",
        story: "a majority of the in-sync set is enough to commit",
        profiles: &[Profile::Crash, Profile::Power, Profile::Swarm],
    },
    Mutant {
        name: "M07",
        story: "a new primary serves before it has reconciled",
        profiles: &[Profile::Crash, Profile::Churn, Profile::Swarm],
    },
    Mutant {
        name: "M08",
        story: "a new primary drops what it was not told is committed",
        profiles: &[Profile::Crash, Profile::Churn, Profile::Swarm],
    },
    Mutant { name: "M10", story: "a flush that failed is tried again and trusted", profiles: &[Profile::Fsync] },
    Mutant {
        name: "M11",
        story: "the folder is not flushed after a segment was made or renamed",
        profiles: &[Profile::Power],
    },
    Mutant {
        name: "M12",
        story: "compaction drops a tombstone while an older value lives in another segment",
        profiles: &[Profile::Compaction],
    },
    Mutant {
        name: "M15",
        story: "a repeated request is applied twice",
        profiles: &[Profile::Partition, Profile::Crash, Profile::Swarm],
    },
];

/// Plants one bug in this process.
pub fn choose(name: &str) -> Result<(), String> {
    if !ALL.iter().any(|mutant| mutant.name == name) {
        let names: Vec<&str> = ALL.iter().map(|mutant| mutant.name).collect();
        return Err(format!("no planted bug is named {name}; there are {}", names.join(", ")));
    }
    #[cfg(feature = "mutants")]
    env::mutants::choose(Some(name));
    if cfg!(feature = "mutants") { Ok(()) } else { Err("this build has no planted bugs".to_owned()) }
}

#[cfg(not(feature = "mutants"))]
pub fn command(_only: Option<&str>, _seeds_max: u64) -> ExitCode {
    eprintln!("this build has no planted bugs: cargo run --release -p sim --features mutants -- mutants");
    for mutant in ALL {
        let profiles: Vec<String> = mutant.profiles.iter().map(|profile| crate::profile_name(*profile)).collect();
        eprintln!("  {:<5} {} (looked for in {})", mutant.name, mutant.story, profiles.join(", "));
    }
    ExitCode::from(2)
}

#[cfg(feature = "mutants")]
pub fn command(only: Option<&str>, seeds_max: u64) -> ExitCode {
    let chosen: Vec<&Mutant> = ALL.iter().filter(|mutant| only.is_none_or(|only| only == mutant.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|mutant| mutant.name).collect();
        eprintln!("no planted bug is named {}; there are {}", only.unwrap_or_default(), names.join(", "));
        return ExitCode::from(2);
    }
    let mut survivors = 0;
    for mutant in chosen {
        match hunt(mutant, seeds_max) {
            Some((seeds, what)) => {
                println!("{:<5} found after {seeds:>4} seeds: {}: {what}", mutant.name, mutant.story)
            }
            None => {
                survivors += 1;
                println!("{:<5} SURVIVES {seeds_max} seeds: {}", mutant.name, mutant.story);
            }
        }
    }
    println!("survivors={survivors}");
    ExitCode::from(u8::from(survivors > 0))
}

/// How many seeds it took, and what was seen.
#[cfg(feature = "mutants")]
fn hunt(mutant: &Mutant, seeds_max: u64) -> Option<(u64, String)> {
    env::mutants::choose(Some(mutant.name));
    let found = (0..seeds_max).find_map(|seed| {
        let profile = mutant.profiles[seed as usize % mutant.profiles.len()];
        let plan = Plan::draw(seed, profile);
        let outcome = crate::on_a_fresh_thread(move |print| run::run(&plan, print), None);
        match outcome.verdict {
            Verdict::Violated(violations) => Some((seed + 1, violations[0].to_string())),
            Verdict::Valid | Verdict::Unknown(_) => None,
        }
    });
    env::mutants::choose(None);
    found
}
