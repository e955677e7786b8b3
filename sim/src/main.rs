//! The simulation: whole clusters, made and broken from a seed, judged by what their clients saw.
//!
//! Source, in reading order: `plan` (what a run will do), `cluster` (who takes part), `workload` (what clients do), `run`
//! (one run from start to verdict), `watch` and `invariant` (what must hold meanwhile), `scenario` (scripted runs with a
//! story), `mutant` (planted bugs that must be found), `coverage` (what a sweep exercised), `shrink` (the least of a plan that
//! still fails), and this file, the command line.

mod cluster;
mod coverage;
mod invariant;
mod mutant;
mod plan;
mod run;
mod scenario;
mod shrink;
mod watch;
mod workload;

use clap::{Parser, Subcommand};
use coverage::Coverage;
use model::history::Format;
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
    /// Leaves out of a failing seed's plan all that its failure does not need, and prints the plan.
    ///
    /// A failure is the same if the same invariant was violated first. Exit status: 0 shrunk, 2 the seed does not fail.
    #[command(after_help = "Example: sim shrink --seed 7 > plan.json")]
    Shrink {
        #[arg(long)]
        seed: u64,
        #[arg(long, value_enum, default_value = "swarm")]
        profile: Profile,
        /// With this planted bug (a build with --features mutants); see `sim mutants`.
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
        /// Be content after so many runs.
        #[arg(long, default_value_t = 300)]
        runs_max: u64,
    },
    /// Runs a plan that was written down. Exit status and last line are those of `run`.
    #[command(after_help = "Example: sim replay plan.json --log info")]
    Replay {
        file: std::path::PathBuf,
        /// With this planted bug (a build with --features mutants); see `sim mutants`.
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
        /// Print what nodes log, at this level and above.
        #[arg(long, value_name = "LEVEL")]
        log: Option<tracing::Level>,
    },
    /// Runs each seed in two processes, whose traces must be equal.
    #[command(after_help = "Example: sim twice --seed 7 --seeds 20")]
    Twice(RunArguments),
    /// Writes what the clients of a run did, for other checkers: Knossos and Elle read `edn` and `elle`, Porcupine `jsonl`.
    #[command(after_help = "Example: sim export --seed 7 --format edn > history.edn")]
    Export {
        #[arg(long)]
        seed: u64,
        #[arg(long, value_enum, default_value = "swarm")]
        profile: Profile,
        /// edn, elle or jsonl
        #[arg(long)]
        format: Format,
        /// What concerns this key alone.
        #[arg(long)]
        key: Option<String>,
        /// With this planted bug (a build with --features mutants); see `sim mutants`.
        #[arg(long, value_name = "NAME")]
        mutant: Option<String>,
    },
    /// Says how many seconds are simulated in one second of processor time: 5 servers, 3 masters, 64 regions, all checks.
    #[command(after_help = "Example: sim speed --seconds 30")]
    Speed {
        /// Simulated seconds under load.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
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
    /// With this planted bug (a build with --features mutants); see `sim mutants`.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
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
        Verb::Run(arguments) => planted(arguments.mutant.as_deref(), || run_seeds(&arguments)),
        Verb::Scenario { name, all, list, log } => scenario::command(name.as_deref(), all, list, log),
        Verb::Mutants { only, seeds_max } => mutant::command(only.as_deref(), seeds_max),
        Verb::Shrink { seed, profile, mutant, runs_max } => {
            planted(mutant.as_deref(), || shrink_seed(Plan::draw(seed, profile), runs_max))
        }
        Verb::Replay { file, mutant, log } => planted(mutant.as_deref(), || replay(&file, log)),
        Verb::Twice(arguments) => {
            let arguments = RunArguments { twice: true, ..arguments };
            planted(arguments.mutant.as_deref(), || run_seeds(&arguments))
        }
        Verb::Export { seed, profile, format, key, mutant } => {
            planted(mutant.as_deref(), || export(Plan::draw(seed, profile), format, key.as_deref()))
        }
        Verb::Speed { seconds, seed } => speed(Plan::for_speed(seed, seconds * 1000)),
        Verb::Plan { seed, profile } => {
            print_plan(&Plan::draw(seed, profile));
            ExitCode::SUCCESS
        }
    }
}

fn print_plan(plan: &Plan) {
    println!("{}", serde_json::to_string_pretty(plan).expect("a plan is plain data"));
}

/// Does something in a process with a bug planted, if one is named.
fn planted(mutant: Option<&str>, act: impl FnOnce() -> ExitCode) -> ExitCode {
    match mutant.map_or(Ok(()), mutant::choose) {
        Ok(()) => act(),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn run_seeds(arguments: &RunArguments) -> ExitCode {
    let first = arguments.seed.unwrap_or_else(|| {
        let drawn = env::real::random_u64() >> 32;
        println!("seeds from {drawn} on, drawn at random");
        drawn
    });
    let (mut worst, mut coverage, mut last_line) = (0, Coverage::default(), None);
    let started = env::real::stopwatch();
    for seed in first..first + arguments.seeds {
        if arguments.minutes_max.is_some_and(|most| started.elapsed().as_secs_f64() > most * 60.0) {
            println!("  no new seed is begun after {:.1} minutes", started.elapsed().as_secs_f64() / 60.0);
            break;
        }
        last_line.take().inspect(|line| println!("{line}"));
        let (status, line) = run_seed(seed, arguments, &mut coverage);
        last_line = Some(line);
        worst = if status == 1 || worst == 1 { 1 } else { status.max(worst) };
        if status != 0 && !arguments.keep_going {
            break;
        }
    }
    if arguments.seeds > 1 {
        println!("  {coverage}");
    }
    if arguments.profile == Profile::Swarm && !coverage.missing().is_empty() {
        println!("  unknown: never exercised: {}", coverage.missing().join(", "));
        worst = if worst == 0 { 2 } else { worst };
    }
    last_line.inspect(|line| println!("{line}"));
    ExitCode::from(worst)
}

/// The status, and the line that says what came of it.
fn run_seed(seed: u64, arguments: &RunArguments, coverage: &mut Coverage) -> (u8, String) {
    let plan = Plan::draw(seed, arguments.profile);
    let started = env::real::stopwatch();
    let outcome = on_a_fresh_thread(move |print| run::run(&plan, print), arguments.log);
    let wall = started.elapsed();
    coverage.add(&outcome);
    if arguments.digests {
        outcome.seconds.iter().for_each(|digest| println!("second {digest:016x}"));
    }
    let mut status = report(&outcome);
    if arguments.twice && status == 0 {
        status = compare_with_another_process(seed, arguments, &outcome);
    }
    if status != 0 {
        println!("  again: sim {} --log info", again(seed, arguments).join(" "));
    }
    (status, last_line(seed, status, &outcome, wall))
}

fn last_line(seed: u64, status: u8, outcome: &Outcome, wall: std::time::Duration) -> String {
    let verdict = match status {
        0 => "valid",
        1 => "violated",
        _ => "unknown",
    };
    let (trace, sim, wall) = (outcome.trace, outcome.sim.as_secs_f64(), wall.as_secs_f64());
    format!("seed={seed} verdict={verdict} trace={trace:016x} sim_seconds={sim:.1} wall_seconds={wall:.2}")
}

#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
fn replay(file: &std::path::Path, log: Option<tracing::Level>) -> ExitCode {
    let read = std::fs::read(file).map_err(|error| error.to_string());
    let plan: Plan = match read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("cannot read the plan {}: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    let (seed, started) = (plan.seed, env::real::stopwatch());
    let outcome = on_a_fresh_thread(move |print| run::run(&plan, print), log);
    let status = report(&outcome);
    println!("{}", last_line(seed, status, &outcome, started.elapsed()));
    ExitCode::from(status)
}

/// The invariant that was violated first.
fn failure(plan: &Plan) -> Option<&'static str> {
    let plan = plan.clone();
    match on_a_fresh_thread(move |print| run::run(&plan, print), None).verdict {
        Verdict::Violated(violations) => Some(violations[0].invariant),
        Verdict::Valid | Verdict::Unknown(_) => None,
    }
}

fn export(plan: Plan, format: Format, key: Option<&str>) -> ExitCode {
    let outcome = on_a_fresh_thread(move |print| run::run(&plan, print), None);
    let written = model::history::export(&outcome.history, key.map(str::as_bytes), format, std::io::stdout().lock());
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write the history: {error}");
            ExitCode::from(2)
        }
    }
}

fn speed(plan: Plan) -> ExitCode {
    let (outcome, spent) = on_a_fresh_thread(
        move |print| {
            let begun = env::real::thread_cpu_time();
            (run::run(&plan, print), env::real::thread_cpu_time() - begun)
        },
        None,
    );
    let status = report(&outcome);
    let (sim, cpu) = (outcome.sim.as_secs_f64(), spent.as_secs_f64());
    println!("  {sim:.1} simulated seconds took {cpu:.1} seconds of processor time");
    println!("backend=turmoil sim_seconds_per_second={:.1}", sim / cpu);
    ExitCode::from(status)
}

fn shrink_seed(plan: Plan, runs_max: u64) -> ExitCode {
    let Some(invariant) = failure(&plan) else {
        eprintln!("seed {} violates nothing", plan.seed);
        return ExitCode::from(2);
    };
    let before = plan.events.len();
    let shrunk = shrink::shrink(plan, runs_max, |plan| failure(plan) == Some(invariant));
    let (after, runs) = (shrunk.plan.events.len(), shrunk.runs);
    eprintln!("still violates {invariant} with {after} of {before} events, found in {runs} runs");
    print_plan(&shrunk.plan);
    ExitCode::SUCCESS
}

/// The arguments that run one seed once more.
fn again(seed: u64, arguments: &RunArguments) -> Vec<String> {
    let fixed = ["run".to_owned(), "--seed".to_owned(), seed.to_string()];
    let profile = ["--profile".to_owned(), profile_name(arguments.profile)];
    let mutant = arguments.mutant.iter().flat_map(|name| ["--mutant".to_owned(), name.clone()]);
    fixed.into_iter().chain(profile).chain(mutant).collect()
}

/// A seed gets a thread of its own, so that nothing thread-local is left over from another.
pub fn on_a_fresh_thread<T: Send + 'static>(
    work: impl FnOnce(Option<tracing::Level>) -> T + Send + 'static,
    print: Option<tracing::Level>,
) -> T {
    env::real::on_thread(64 << 20, move || work(print))
}

/// Prints what was found wrong; the exit status.
fn report(outcome: &Outcome) -> u8 {
    match &outcome.verdict {
        Verdict::Valid => {
            println!(
                "  {} operations, {} done, {} times a primary began to serve",
                outcome.operations,
                outcome.done,
                outcome.marks.get("serves").copied().unwrap_or(0)
            );
            let faults = coverage::faults(&outcome.marks);
            if !faults.is_empty() {
                println!("  faults: {faults}");
            }
            0
        }
        Verdict::Unknown(why) => {
            println!("  unknown: {why}");
            2
        }
        Verdict::Violated(violations) => {
            violations.iter().for_each(|violation| println!("  {violation}"));
            1
        }
    }
}

pub fn profile_name(profile: Profile) -> String {
    clap::ValueEnum::to_possible_value(&profile).expect("none is hidden").get_name().to_owned()
}

/// Runs this program again: nothing that is left over in this process can make the two alike.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
fn compare_with_another_process(seed: u64, arguments: &RunArguments, outcome: &Outcome) -> u8 {
    let program = std::env::current_exe().expect("a program knows where it is");
    let output = std::process::Command::new(program)
        .args(again(seed, arguments))
        .arg("--digests")
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
