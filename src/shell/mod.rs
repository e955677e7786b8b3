//! The command line: one-shot commands, single nodes, and a whole cluster to try things with.
//!
//! What it keeps to, in every command: answers go to standard output and everything else to standard error; the exit status
//! is 0 when the command did what it says, 1 when it did not (or there is no such record), 2 when it could not be
//! understood; `--json` answers are for scripts and keep their names; long work shows how far it is.
//!
//! A command's life: [`args`] says what may be typed; [`main`] parses it, starts the runtime and calls the command's
//! function; that finds the cluster ([`cluster::connect`]), asks, and prints ([`output`]) or fails ([`failure::Failure`]).
//!
//! - [`data`]: one record; [`admin`]: tables and the cluster; [`import`] and [`export`]: many records.
//! - [`size`]: what a table will take, asking nobody.
//! - [`role`]: one node, from flags or a file ([`config`]); [`dev`]: all nodes.

mod admin;
pub mod args;
mod bench;
mod cluster;
pub mod config;
mod data;
mod dev;
mod export;
mod failure;
mod import;
mod limits;
mod lines;
mod logging;
mod output;
mod progress;
mod records;
mod role;
mod size;
mod suggest;

use args::{Arguments, Command};
use clap::Parser;
use env::Env;
use failure::Failure;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    run_command(Arguments::parse())
}

/// [`main`] for a process that was started for something else. The first argument is the program's name.
pub fn main_with(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => run_command(arguments),
        Err(error) => error.exit(),
    }
}

fn run_command(arguments: Arguments) -> ExitCode {
    let runtime = match env::real::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let result = runtime.block_on(run(arguments));
    // A thread may still wait for standard input, which may never end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    eprintln!("steadfast: {failure}");
    failure.exit_code()
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let log = arguments.log;
    match arguments.command {
        Command::Dev(command) => dev::run(&command, log).await,
        Command::Server(command) => role::run_server(command, log).await,
        Command::Master(command) => role::run_master(command, log).await,
        Command::CheckConfig(command) => role::check_config(&command),
        Command::Size(command) => size::run(&command),
        command => {
            logging::start(log.as_deref().unwrap_or("warn"))?;
            let env = env::real::open_diskless("client".into());
            env.enter(ask(&env, &command)).await
        }
    }
}

/// Commands to a cluster that runs.
async fn ask(env: &Env, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Table(command) => admin::table(env, command).await,
        Command::Status(command) => admin::status(env, command).await,
        Command::HandOver(command) => admin::hand_over(env, command).await,
        Command::Recover(command) => admin::recover(env, command).await,
        Command::Put(command) => data::put(env, command).await,
        Command::Get(command) => data::get(env, command).await,
        Command::Delete(command) => data::delete(env, command).await,
        Command::Cas(command) => data::cas(env, command).await,
        Command::Increment(command) => data::increment(env, command).await,
        Command::Append(command) => data::append(env, command).await,
        Command::Import(command) => import::run(env, command).await,
        Command::Bench(command) => bench::run(env, command).await,
        Command::Export(command) => export::run(env, command).await,
        Command::Dev(_) | Command::Server(_) | Command::Master(_) | Command::CheckConfig(_) | Command::Size(_) => {
            unreachable!("started by run")
        }
    }
}
