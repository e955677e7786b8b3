//! The simulation: whole clusters, made and broken from a seed, judged by what their clients saw.
//!
//! Source, in reading order: `plan` (what a run will do), `cluster` (who takes part), `workload` (what clients do), `run`
//! (one run from start to verdict), `watch` and `invariant` (what must hold meanwhile), `scenario` (scripted runs with a
//! story), `mutant` (planted bugs that must be found), and this file, the command line.

mod cluster;
mod invariant;
mod mutant;
mod plan;
mod run;
mod scenario;
mod watch;
mod workload;

use clap::{Parser, Subcommand};
use plan::{Plan, Profile};
use run::{Outcome, Verdict};
use std::process::ExitCode;

/// Runs whole Steadfast clusters inside a deterministic simulation that breaks them.
#[derive(Parser)]
#[command(name = "sim", version, about, after_help = "Example: sim run --seed 7 --profile swarm --twice")]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs seeds and judges them.
    ///
    /// Exit status: 0 valid, 1 violated, 2 unknown. The last line says what came of the last seed.
    #[command(after_help = "Example: sim run --seed 7 --seeds 50")]
    Run(RunArguments),
    /// Runs scripted scenarios.
    #[command(after_help = "Example: sim scenario --all")]
    Scenario {
        /// Which one; see --list.
        name: Option<String>,
        /// Every scenario.
        #[arg(long)]
        all: bool,
        /// Names and stories.
        #[arg(long)]
        list: bool,
        /// Print what nodes log, at this level and above.
        #[arg(long, value_name = "LEVEL")]
        log: Option<tracing::Level>,
    },
    /// Shows that planted bugs are found (a build with --features mutants).
    #[command(after_help = "Example: sim mutants --only M01")]
    Mutants {
        /// Just this one.
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// Give up on a bug after this many seeds.
        #[arg(long, default_value_t = 1000)]
        seeds_max: u64,
    },
    /// Prints the plan of a seed as JSON.
    #[command(after_help = "Example: sim plan --seed 7")]
    Plan {
        #[arg(long)]
        seed: u64,
        #[arg(long, value_enum, default_value = "swarm")]
        profile: Profile,
    },
}

#[derive(clap::Args)]
struct RunArguments {
    /// The seed, or the first of several. At random when not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    #[arg(long, value_enum, default_value = "swarm")]
    profile: Profile,
    /// Run each seed again in another process and compare their traces.
    #[arg(long)]
    twice: bool,
    /// Begin no new seed after so many minutes.
    #[arg(long, value_name = "MINUTES")]
    minutes_max: Option<f64>,
    /// Go on after a violation.
    #[arg(long)]
    keep_going: bool,
    /// Print what nodes log, at this level and above.
    #[arg(long, value_name = "LEVEL")]
    log: Option<tracing::Level>,
    /// Print the digest of each simulated second (for --twice).
    #[arg(long, hide = true)]
    digests: bool,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Verb::Run(arguments) => run_seeds(&arguments),
        Verb::Scenario { name, all, list, log } => scenario::command(name.as_deref(), all, list, log),
        Verb::Mutants { only, seeds_max } => mutant::command(only.as_deref(), seeds_max),
        Verb::Plan { seed, profile } => {
            let plan = Plan::draw(seed, profile);
            println!("{}", serde_json::to_string_pretty(&plan).expect("a plan is plain data"));
            ExitCode::SUCCESS
        }
    }
}

fn run_seeds(arguments: &RunArguments) -> ExitCode {
    let first = arguments.seed.unwrap_or_else(|| env::real::random_u64() >> 32);
    let mut worst = 0;
    let started = env::real::stopwatch();
    for seed in first..first + arguments.seeds {
        if arguments.minutes_max.is_some_and(|most| started.elapsed().as_secs_f64() > most * 60.0) {
            println!("  no new seed is begun after {:.1} minutes", started.elapsed().as_secs_f64() / 60.0);
            break;
        }
        let status = run_seed(seed, arguments);
        worst = if status == 1 || worst == 1 { 1 } else { status.max(worst) };
        if status != 0 && !arguments.keep_going {
            break;
        }
    }
    ExitCode::from(worst)
}

fn run_seed(seed: u64, arguments: &RunArguments) -> u8 {
    let plan = Plan::draw(seed, arguments.profile);
    let started = env::real::stopwatch();
    let outcome = on_a_fresh_thread(move |print| run::run(&plan, print), arguments.log);
    let wall = started.elapsed();
    if arguments.digests {
        outcome.seconds.iter().for_each(|digest| println!("second {digest:016x}"));
    }
    let mut status = report(&outcome, seed, arguments.profile);
    if arguments.twice && status == 0 {
        status = compare_with_another_process(seed, arguments.profile, &outcome);
    }
    println!(
        "seed={seed} verdict={} trace={:016x} sim_seconds={:.1} wall_seconds={:.2}",
        match status {
            0 => "valid",
            1 => "violated",
            _ => "unknown",
        },
        outcome.trace,
        outcome.sim.as_secs_f64(),
        wall.as_secs_f64(),
    );
    status
}

/// A seed gets a thread of its own, so that nothing thread-local is left over from another.
pub fn on_a_fresh_thread<T: Send + 'static>(
    work: impl FnOnce(Option<tracing::Level>) -> T + Send + 'static,
    print: Option<tracing::Level>,
) -> T {
    env::real::on_thread(64 << 20, move || work(print))
}

/// Prints what was found wrong; the exit status.
fn report(outcome: &Outcome, seed: u64, profile: Profile) -> u8 {
    match &outcome.verdict {
        Verdict::Valid => {
            println!(
                "  {} operations, {} done, {} times a primary began to serve",
                outcome.operations, outcome.done, outcome.elections
            );
            0
        }
        Verdict::Unknown(why) => {
            println!("  unknown: {why}");
            2
        }
        Verdict::Violated(violations) => {
            violations.iter().for_each(|violation| println!("  {violation}"));
            println!("  again: sim run --seed {seed} --profile {} --log info", profile_name(profile));
            1
        }
    }
}

pub fn profile_name(profile: Profile) -> String {
    clap::ValueEnum::to_possible_value(&profile).expect("none is hidden").get_name().to_owned()
}

/// Runs this program again: nothing that is left over in this process can make the two alike.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
fn compare_with_another_process(seed: u64, profile: Profile, outcome: &Outcome) -> u8 {
    let program = std::env::current_exe().expect("a program knows where it is");
    let seed = seed.to_string();
    let output = std::process::Command::new(program)
        .args(["run", "--seed", &seed, "--profile", &profile_name(profile), "--digests"])
        .stderr(std::process::Stdio::inherit())
        .output();
    let output = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            println!("  unknown: the second run cannot be started: {error}");
            return 2;
        }
    };
    let theirs: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("second ")).collect();
    let ours: Vec<String> = outcome.seconds.iter().map(|digest| format!("{digest:016x}")).collect();
    let trace = format!("trace={:016x}", outcome.trace);
    if output.contains(&trace) {
        println!("  a second process ran the same: {trace}");
        return 0;
    }
    let second = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    match second {
        Some(second) => println!("  two runs of one seed differ from simulated second {second} on"),
        None => println!("  two runs of one seed differ at their end"),
    }
    1
}
