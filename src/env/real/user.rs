//! What the command line does for its user: files by any path, standard input and output, signals.

use super::error::{at, context};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

/// Completes when the process is asked to stop: Ctrl-C or SIGTERM. From this call on neither kills it any more.
///
/// # Panics
/// Outside a [`super::runtime`].
#[cfg(feature = "net")]
pub fn shutdown_signal() -> io::Result<impl std::future::Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// A file to read from, or standard input.
pub fn user_input(path: Option<&Path>) -> io::Result<Box<dyn Read + Send>> {
    match path {
        Some(path) => Ok(Box::new(BufReader::new(File::open(path).map_err(at("open", path))?))),
        None => Ok(Box::new(io::stdin())),
    }
}

/// How long the file is, where that can be known before it is read: not of standard input, a pipe or a device.
pub fn user_input_len(path: Option<&Path>) -> Option<u64> {
    let metadata = fs::metadata(path?).ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// A new or emptied file to write to, or standard output. Buffered: flush it at the end to see its errors.
pub fn user_output(path: Option<&Path>) -> io::Result<Box<dyn Write + Send>> {
    match path {
        Some(path) => Ok(Box::new(BufWriter::new(File::create(path).map_err(at("create", path))?))),
        None => Ok(Box::new(BufWriter::new(io::stdout()))),
    }
}

/// The text of a file.
pub fn read_user_file(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(at("read", path))
}

pub fn folder_exists(path: &Path) -> bool {
    path.is_dir()
}

/// Removes the folder unless something is in it.
pub fn remove_empty_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => Ok(()),
        removed => removed.map_err(at("remove folder", path)),
    }
}

/// Puts `bytes` at `path`, as a whole: who reads meanwhile sees the old content or the new.
pub fn write_user_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        let what = format!("write {}", path.display());
        return Err(context(what, io::Error::new(ErrorKind::InvalidInput, "the path names no file")));
    };
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = write_flushed(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        at("write", path)(error)
    })
}

fn write_flushed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
