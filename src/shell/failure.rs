//! How a command ends when it does not succeed.

use crate::client::{ClientError, WriteError};
use std::process::ExitCode;

/// What goes to standard error, and the exit status.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line or a settings file says something that cannot be meant: status 2.
    #[error("{0}")]
    Usage(String),
    /// Status 1.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    pub fn usage(what: impl ToString) -> Failure {
        Failure::Usage(what.to_string())
    }

    pub fn failed(what: impl ToString) -> Failure {
        Failure::Failed(what.to_string())
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::from(1),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::failed(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Failed(format!("{error}{}", hint(&error)))
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        Failure::Failed(format!("{error}{}", hint(error.reason())))
    }
}

fn hint(error: &ClientError) -> &'static str {
    match error {
        ClientError::Refused(_) => " (--secret-file FILE gives the cluster's secret, where it has one)",
        _ => "",
    }
}
