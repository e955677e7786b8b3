//! How a call ends that does not end well.

use crate::protocol::{CallError, Error, ErrorCode};

/// Why, and with it what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The request itself is wrong. Trying again does not help.
    #[error("invalid: {0}")]
    Invalid(String),
    /// There is no such table.
    #[error("not found: {0}")]
    NotFound(String),
    /// There is such a table already, of another kind.
    #[error("exists: {0}")]
    Exists(String),
    /// Somebody else wrote in between: read again and retry.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The servers have no space: delete something, or add servers. Reads and deletes go on.
    #[error("out of space: {0}")]
    Full(String),
    /// The data is damaged, and no replica could repair it.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// No server would take us: another cluster, another version, a wrong or missing secret. Change the configuration.
    #[error("refused: {0}")]
    Refused(String),
    /// The time was up before a server could answer; this was the last reason. Try later.
    #[error("no answer in time: {0}")]
    Unavailable(String),
}

/// A write that has no outcome to tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It had no effect and never will.
    #[error("not done: {0}")]
    NotDone(ClientError),
    /// It may have happened, or may yet happen. Ask, do not guess.
    #[error("perhaps done: {0}")]
    Unknown(ClientError),
}

impl WriteError {
    pub fn reason(&self) -> &ClientError {
        match self {
            WriteError::NotDone(reason) | WriteError::Unknown(reason) => reason,
        }
    }

    /// For a call one of whose attempts may have arrived.
    pub(super) fn of(reason: ClientError, may_have_happened: bool) -> WriteError {
        if may_have_happened { WriteError::Unknown(reason) } else { WriteError::NotDone(reason) }
    }
}

/// An attempt that brought no answer to the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No other attempt would end otherwise.
    Final(ClientError),
    Retry(Retry),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    pub reason: String,
    /// This attempt may have arrived and been carried out.
    pub may_have_happened: bool,
    /// Somebody else should be asked, and will know more at once.
    pub is_elsewhere: bool,
}

impl Failure {
    fn retry(reason: String, may_have_happened: bool) -> Failure {
        Failure::Retry(Retry { reason, may_have_happened, is_elsewhere: false })
    }

    /// An answer of a kind that is none to what was asked.
    pub fn unexpected() -> Failure {
        Failure::retry("a server gave an answer to another question".to_owned(), true)
    }

    pub fn of_call(error: CallError) -> Failure {
        match error {
            CallError::TooLarge(too_large) => Failure::Final(ClientError::Invalid(too_large.to_string())),
            other => Failure::retry(other.to_string(), other.may_have_happened()),
        }
    }

    pub fn of_answer(error: Error) -> Failure {
        let Error { code, message } = error;
        match code {
            ErrorCode::WrongRegion | ErrorCode::Fenced => {
                Failure::Retry(Retry { reason: message, may_have_happened: false, is_elsewhere: true })
            }
            ErrorCode::Unavailable => Failure::retry(message, false),
            // After an input/output error the write may be on the disk all the same.
            ErrorCode::Unknown | ErrorCode::Io => Failure::retry(message, true),
            _ => Failure::Final(ClientError::of_answer(code, message)),
        }
    }
}

impl ClientError {
    /// For an error that is the answer, or that refuses one operation of many.
    pub(super) fn of_answer(code: ErrorCode, message: String) -> ClientError {
        match code {
            ErrorCode::Invalid => ClientError::Invalid(message),
            ErrorCode::NotFound => ClientError::NotFound(message),
            ErrorCode::Exists => ClientError::Exists(message),
            ErrorCode::Conflict => ClientError::Conflict(message),
            ErrorCode::Full => ClientError::Full(message),
            ErrorCode::Corrupt => ClientError::Corrupt(message),
            ErrorCode::WrongRegion
            | ErrorCode::Fenced
            | ErrorCode::Unavailable
            | ErrorCode::Unknown
            | ErrorCode::Io => ClientError::Unavailable(message),
        }
    }
}
