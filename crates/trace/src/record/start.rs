//! What a command line starts.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{RecordError, io_error};

/// Scripts whose interpreters are scripts, at most, as in Linux.
const MOST_SCRIPTS: usize = 5;

/// Its name and its value.
type Variable = (String, String);

/// An image that the emulator can run, and how to.
#[derive(Debug)]
pub(super) struct Start {
    pub program: PathBuf,
    /// Its arguments, with the name that it is called by.
    pub words: Vec<String>,
    /// Changes of its environment.
    pub variables: Vec<Variable>,
}

impl Start {
    /// What the command comes to: a script is its interpreter's argument, and `env` is left out where it would become
    /// another program at once, which could not be followed.
    pub fn of(command: &[String]) -> Result<Start, RecordError> {
        let name = command.first().ok_or(RecordError::NoCommand)?;
        let (mut words, mut variables) = (command.to_vec(), Vec::new());
        for _ in 0..=MOST_SCRIPTS {
            let program = find_program(&words[0])?;
            if program.file_name().is_some_and(|name| name == "env")
                && let Some((set, rest)) = through_env(&words)
            {
                variables.extend(set);
                words = rest;
                continue;
            }
            match interpreter(&program)? {
                None => return Ok(Start { program, words, variables }),
                Some(interpreter) => {
                    words[0] = program.display().to_string();
                    words.splice(0..0, interpreter);
                }
            }
        }
        Err(RecordError::Scripts { program: name.clone() })
    }
}

/// The variables that `env` sets, and the command that it runs. `None` if it does something else.
fn through_env(words: &[String]) -> Option<(Vec<Variable>, Vec<String>)> {
    let pair = |word: &String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables: Vec<_> = words[1..].iter().map_while(pair).collect();
    let rest = words[1 + variables.len()..].to_vec();
    let runs = rest.first().is_some_and(|first| !first.starts_with('-'));
    runs.then_some((variables, rest))
}

pub(super) fn executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
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

/// The interpreter of a script and its argument, if it is one. The emulator runs ELF programs of this machine's
/// architecture, and nothing else.
fn interpreter(path: &Path) -> Result<Option<Vec<String>>, RecordError> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(io_error(path, "open"))?;
    file.take(256).read_to_end(&mut head).map_err(io_error(path, "read"))?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line.split(|&byte| byte == b'\n').next().unwrap_or(line));
        // As Linux does: all that follows the interpreter is one argument.
        let (name, argument) = line.trim().split_once([' ', '\t']).unwrap_or((line.trim(), ""));
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        return Ok(Some([name].into_iter().chain(argument).map(str::to_owned).collect()));
    }
    let machine: &[u8] = match std::env::consts::ARCH {
        "x86_64" => &[62, 0],
        "aarch64" => &[183, 0],
        _ => return Ok(None),
    };
    if head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(machine) {
        return Ok(None);
    }
    Err(RecordError::ForeignProgram { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(words: &[&str]) -> Result<Start, RecordError> {
        Start::of(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn scripts_and_env_lead_to_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path.display().to_string()
        };
        let sh = in_path("sh").unwrap();
        let first = script("first", "#!/usr/bin/env sh\ntrue\n");
        let found = start(&["env", "A=1", "B=x=y", &first, "more"]).unwrap();
        assert_eq!((&found.program, &found.words[..]), (&sh, &["sh", &first, "more"].map(str::to_owned)[..]));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found.variables, [pair("A", "1"), pair("B", "x=y")]);
        let second = script("second", &format!("#! {first} -e  -x \n"));
        let words = start(&[&second]).unwrap().words;
        assert_eq!(words, ["sh", &first, "-e  -x", &second]);
        // With options it is itself what runs.
        assert!(start(&["env", "-u", "A", "sh"]).unwrap().program.ends_with("env"));
        let own = folder.path().join("own").display().to_string();
        script("own", &format!("#!{own}\n"));
        assert!(
            start(&[&own]).unwrap_err().to_string().contains("own: a script whose interpreter is a script")
        );
        let lost = script("lost", "#!/no/such/interpreter\n");
        assert!(start(&[&lost]).unwrap_err().to_string().contains("/no/such/interpreter: no such program"));
    }
}
