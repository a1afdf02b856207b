//! The recorded program itself, which a guest runs instead of its recording: a disk with all files that it needs, at
//! their paths.

use crate::error::{Error, Result};
use crate::scratch;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// Files that a C library looks at whatever the program does.
const OF_THE_LIBRARY: [&str; 4] = ["/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group"];
/// Folders that programs find everywhere.
const FOLDERS: [&str; 5] = ["dev", "proc", "sys", "tmp", "var/tmp"];
/// A file that somebody may run.
const EXECUTABLE: u32 = 0o111;
/// Links that may lead to each other.
const MOST_LINKS: u32 = 40;

/// A command, and the files that its guest has.
#[derive(Clone, Debug)]
pub struct Original {
    /// The command, as it was given.
    pub command: Vec<String>,
    /// Files and folders that it was given besides.
    pub with: Vec<PathBuf>,
    program: PathBuf,
    words: Vec<Vec<u8>>,
    folder: PathBuf,
    root: Arc<TempDir>,
}

impl Original {
    /// What this command starts here, and copies of the files that it is known to need: its program, the libraries of
    /// that, its arguments that are files, and `with`; programs among these with their libraries, too.
    ///
    /// # Errors
    /// There is no such program, a file cannot be read, or there is no room for its copy.
    pub fn find(command: &[String], with: &[PathBuf]) -> Result<Original> {
        let start = trace::record::start(command).map_err(|error| Error::Input(error.to_string()))?;
        let folder = std::env::current_dir().map_err(|error| Error::file("find", Path::new("."), error))?;
        let mut paths = vec![start.program.clone()];
        paths.extend(libraries(&start.program)?);
        let arguments = start.words.iter().skip(1).map(|word| folder.join(OsStr::from_bytes(word)));
        paths.extend(arguments.filter(|path| path.is_file()));
        paths.extend(OF_THE_LIBRARY.iter().map(PathBuf::from).filter(|path| path.exists()));
        for path in with {
            let of = std::fs::metadata(path).map_err(|error| Error::file("read", path, error))?;
            if of.is_file() && of.permissions().mode() & EXECUTABLE != 0 {
                paths.extend(libraries(path)?);
            }
            paths.push(folder.join(path));
        }
        let root = Arc::new(scratch::folder()?);
        let mut copies = Copies { root: root.path(), links: 0 };
        for folder in FOLDERS.iter().map(Path::new).chain([folder.as_path()]) {
            copies.folder(folder)?;
        }
        paths.iter().try_for_each(|path| copies.add(path))?;
        let (command, with) = (command.to_vec(), with.to_vec());
        Ok(Original { command, with, program: start.program, words: start.words, folder, root })
    }

    /// For the guest: the folder to run in, the program, the number of its arguments, these, and the environment. Each
    /// ends with a zero byte.
    pub fn description(&self) -> Vec<u8> {
        let count = self.words.len().to_string().into_bytes();
        let variables = std::env::vars_os().map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            variable
        });
        let [folder, program] =
            [&self.folder, &self.program].map(|path| path.as_os_str().as_bytes().to_vec());
        let parts = [folder, program, count].into_iter().chain(self.words.iter().cloned()).chain(variables);
        parts.flat_map(|part| part.into_iter().chain([0])).collect()
    }

    /// The folder whose content is the guest's disk.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Those of the recorded files `names` that the guest does not have: a recording names files without their folders.
    pub fn lacks<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let mut there = BTreeSet::new();
        collect_names(self.root(), &mut there);
        names.filter(|name| !there.contains(OsStr::new(name))).collect()
    }
}

/// The shared libraries of a program, as the system's loader finds them; none if it is static.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let ldd = Path::new("ldd");
    let output = Command::new(ldd).arg(program).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::file("run", ldd, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(text.lines().filter_map(path).collect())
}

/// A copy of files below another root.
struct Copies<'a> {
    root: &'a Path,
    links: u32,
}

impl Copies<'_> {
    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn folder(&self, path: &Path) -> Result<()> {
        let at = self.at(path);
        std::fs::create_dir_all(&at).map_err(|error| Error::output("make the folder", &at, &error))
    }

    /// Copy what is at `path`, with the links that lead there.
    fn add(&mut self, path: &Path) -> Result<()> {
        let mut here = PathBuf::from("/");
        let mut rest = path.components();
        while let Some(component) = rest.next() {
            match component {
                Component::Normal(name) => here.push(name),
                Component::ParentDir => _ = here.pop(),
                _ => continue,
            }
            let kind = std::fs::symlink_metadata(&here).map_err(|error| Error::file("read", &here, error))?;
            if kind.is_symlink() {
                return self.follow(&here, rest.as_path());
            }
            match (kind.is_dir(), rest.as_path().as_os_str().is_empty()) {
                (true, true) => return self.all_of(&here),
                (true, false) => self.folder(&here)?,
                // A program makes its own sockets and the like.
                (false, _) if !kind.is_file() => return Ok(()),
                (false, _) => self.file(&here)?,
            }
        }
        Ok(())
    }

    /// Copy a link, and what is at `rest` from where it leads.
    fn follow(&mut self, link: &Path, rest: &Path) -> Result<()> {
        let wrong = |error| Error::file("follow", link, error);
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Error::file("follow", link, "too many links"));
        }
        let target = std::fs::read_link(link).map_err(wrong)?;
        let at = self.at(link);
        if at.symlink_metadata().is_err() {
            let made = std::os::unix::fs::symlink(&target, &at);
            made.map_err(|error| Error::output("make the link", &at, &error))?;
        }
        let parent = link.parent().unwrap_or(Path::new("/"));
        let result = self.add(&parent.join(target).join(rest));
        self.links -= 1;
        result
    }

    fn all_of(&mut self, folder: &Path) -> Result<()> {
        self.folder(folder)?;
        let wrong = |error| Error::file("read", folder, error);
        for entry in std::fs::read_dir(folder).map_err(wrong)? {
            self.add(&entry.map_err(wrong)?.path())?;
        }
        Ok(())
    }

    fn file(&self, path: &Path) -> Result<()> {
        let at = self.at(path);
        if at.exists() {
            return Ok(());
        }
        let read = std::fs::File::open(path).map(drop);
        read.map_err(|error| Error::file("read", path, error))?;
        std::fs::copy(path, &at).map(drop).map_err(|error| Error::write(&at, &error))
    }
}

/// The names of all files below `folder`.
fn collect_names(folder: &Path, names: &mut BTreeSet<OsString>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_names(&entry.path(), names);
        } else {
            names.insert(entry.file_name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_what_a_command_needs_at_its_paths() {
        let given = tempfile::tempdir().unwrap();
        let deep = given.path().join("deep/er");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("one"), "1").unwrap();
        std::os::unix::fs::symlink("er", given.path().join("deep/link")).unwrap();
        std::fs::write(given.path().join("input"), "text").unwrap();
        let input = given.path().join("input").display().to_string();
        let with = [given.path().join("deep/link/one")];
        let original = Original::find(&["sort".into(), "-r".into(), input], &with).unwrap();
        let root = original.root();
        let copy = |path: &Path| root.join(path.strip_prefix("/").unwrap());
        assert_eq!(std::fs::read(copy(&given.path().join("input"))).unwrap(), b"text");
        assert!(copy(&given.path().join("deep/link")).is_symlink());
        assert_eq!(std::fs::read(copy(&deep.join("one"))).unwrap(), b"1");
        assert!(copy(&original.program).exists() && root.join("proc").is_dir());
        let names = ["one", "libc.so.6", "missing"];
        assert_eq!(original.lacks(names.into_iter()), ["missing"]);
        let description = original.description();
        let parts: Vec<&[u8]> = description.split(|byte| *byte == 0).collect();
        assert_eq!((parts[2], parts[4]), (&b"3"[..], &b"-r"[..]));
    }

    #[test]
    fn what_is_missing_is_bad_input() {
        assert!(matches!(Original::find(&["no-such-program".into()], &[]), Err(Error::Input(_))));
        let nowhere = [PathBuf::from("no/such/folder")];
        let Err(Error::Input(why)) = Original::find(&["true".into()], &nowhere) else { panic!("found") };
        assert!(why.contains("no/such/folder"), "{why}");
    }
}
