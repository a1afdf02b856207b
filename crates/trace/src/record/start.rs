//! What a command line starts.

use std::path::{Path, PathBuf};

use super::{RecordError, io_error};
use crate::image::{Refusal, Start, executable};

/// What the command starts: its program, or the interpreter of its script.
///
/// # Errors
/// There is no such program, or it cannot be recorded.
pub fn start(command: &[String]) -> Result<Start, RecordError> {
    let name = command.first().ok_or(RecordError::NoCommand)?;
    let program = find_program(name)?;
    let words = command.iter().map(|word| word.as_bytes().to_vec()).collect();
    Start::of(&program, program.as_os_str().as_encoded_bytes(), words).map_err(|refusal| match refusal {
        Refusal::Impossible(path, _) if !path.exists() => {
            RecordError::NoProgram { program: path.display().to_string() }
        }
        Refusal::Impossible(path, error) => io_error(&path, "execute")(error),
        Refusal::Scripts => RecordError::Scripts { program: name.clone() },
        Refusal::Foreign(path) => RecordError::ForeignProgram { path },
        Refusal::Unreadable(path) => RecordError::Unreadable { path },
        Refusal::Privileged(path) => RecordError::Privileged { path },
    })
}

pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| executable(path))
}

fn find_program(name: &str) -> Result<PathBuf, RecordError> {
    let found = if name.contains('/') {
        Some(PathBuf::from(name)).filter(|path| executable(path))
    } else {
        in_path(name)
    };
    found.ok_or_else(|| match name.contains('/') && Path::new(name).is_file() {
        true => RecordError::NotExecutable { program: name.to_owned() },
        false => RecordError::NoProgram { program: name.to_owned() },
    })
}
