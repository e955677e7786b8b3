//! The way from a command to its cluster.

use crate::client::{Client, Options};
use crate::protocol::Secret;
use crate::shell::args::Connection;
use crate::shell::failure::Failure;
use crate::shell::limits::LISTENER_TIME_MAX;
use env::{Elapsed, Env};
use std::path::Path;

/// Fails at once where nobody listens. Somebody who listens and does not answer is waited for, by each call.
pub async fn connect(env: &Env, connection: &Connection) -> Result<Client, Failure> {
    let client = client(env, connection)?;
    find_a_listener(env, connection).await?;
    Ok(client)
}

/// For a cluster that may be about to listen.
pub fn client(env: &Env, connection: &Connection) -> Result<Client, Failure> {
    let secret = read_secret(connection.secret_file.as_deref())?;
    let options = Options { secret, call_time: connection.timeout, ..Options::default() };
    Ok(Client::connect(env.clone(), connection.connect.clone(), options))
}

async fn find_a_listener(env: &Env, connection: &Connection) -> Result<(), Failure> {
    let mut refusal = String::new();
    for address in &connection.connect {
        match env.timeout(LISTENER_TIME_MAX, env.net().connect(address)).await {
            Ok(Err(error)) => refusal = error.to_string(),
            Ok(Ok(_)) | Err(Elapsed) => return Ok(()),
        }
    }
    Err(Failure::Failed(format!(
        "{refusal}. Is a cluster running? `steadfast dev` starts one; --connect says where to look"
    )))
}

pub fn read_secret(file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let text = env::real::read_user_file(file)?;
    let secret = Secret::new(text.as_bytes());
    secret.map(Some).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}
