//! One build for all mutants: a copy of the project under `target/mutants`, without the mutants that do not
//! compile.

use crate::case::Case;
use crate::list::{MM, Mutant};
use crate::sites::Form;
use crate::write::{Generated, write};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The roots of the two crates that have mutants.
const MM_ROOT: &str = "crates/mm/src/lib.rs";
const KERNEL_ROOT: &str = "crates/kernel/src/lib.rs";

/// An error of the compiler.
struct CompileError {
    file: String,
    /// Position in the file, in bytes.
    at: Range<usize>,
    /// The range of everything that the error mentions.
    around: Range<usize>,
    text: String,
}

/// The directories of a run.
pub struct Workspace {
    /// The project.
    pub root: PathBuf,
    /// This program's output.
    pub work: PathBuf,
}

impl Workspace {
    /// The copy of the project.
    pub fn tree(&self) -> PathBuf {
        self.work.join("tree")
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(self.tree()).args(args).env("CARGO_TARGET_DIR", self.work.join("build"));
        // Branches of mutants often violate lints, which must not fail the build.
        command.env("RUSTFLAGS", "--cap-lints=allow").stdin(Stdio::null());
        command
    }

    /// Copy the project's current files, except for those that `compile` generates: cargo compares
    /// modification times.
    pub fn copy(&self, mutants: &[Mutant]) -> Result<()> {
        let mut generated: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
        generated.insert(MM_ROOT);
        let output = Command::new("git")
            .current_dir(&self.root)
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("cannot run git")?;
        ensure!(output.status.success(), "`git ls-files` fails");
        for file in String::from_utf8(output.stdout)?.lines() {
            let from = self.root.join(file);
            if from.exists() && !generated.contains(file) {
                write_if_changed(&self.tree().join(file), &fs::read(&from)?)?;
            }
        }
        Ok(())
    }

    /// Write the mutants whose numbers are not in `excluded` into the copy, and exclude those that do not
    /// compile until the rest does.
    pub fn compile(&self, mutants: &[Mutant], excluded: &mut BTreeSet<u32>) -> Result<()> {
        write_if_changed(&self.tree().join(MM).join("mutant.rs"), include_bytes!("mutant.rs"))?;
        let lib = fs::read_to_string(self.root.join(MM_ROOT))?;
        let lib = lib.replacen(
            "\npub mod alloc;\n",
            "\n/// The active mutant.\npub mod mutant;\npub mod alloc;\n",
            1,
        );
        ensure!(lib.contains("pub mod mutant;"), "{MM_ROOT} must contain `pub mod alloc;`");
        write_if_changed(&self.tree().join(MM_ROOT), lib.as_bytes())?;
        loop {
            let generated = self.write_all(mutants, excluded)?;
            let errors = self.check()?;
            if errors.is_empty() {
                return Ok(());
            }
            let before = excluded.len();
            for error in &errors {
                if let Some(generated) = generated.get(&error.file) {
                    excluded.extend(generated.culprits(&error.at, &error.around));
                }
            }
            eprintln!("{} errors, {} mutants that do not compile", errors.len(), excluded.len());
            if excluded.len() == before {
                bail!("errors that no mutant causes: {}", errors[0].text);
            }
        }
    }

    fn write_all(&self, mutants: &[Mutant], excluded: &BTreeSet<u32>) -> Result<BTreeMap<String, Generated>> {
        let mut files: BTreeMap<&str, Vec<(u32, &Form, &str)>> = BTreeMap::new();
        for (number, mutant) in (1..).zip(mutants) {
            let of_file = files.entry(&mutant.file).or_default();
            if let (Some(site), false) = (&mutant.site, excluded.contains(&number)) {
                of_file.push((number, &site.form, &mutant.replacement));
            }
        }
        let mut all = BTreeMap::new();
        for (file, mutants) in files {
            let text = fs::read_to_string(self.root.join(file))?;
            let mut generated = write(&text, &mutants);
            if file == KERNEL_ROOT {
                generated.text.push_str("\nuse mm::mutant;\n");
            }
            write_if_changed(&self.tree().join(file), generated.text.as_bytes())?;
            all.insert(file.to_owned(), generated);
        }
        Ok(all)
    }

    /// The errors of the compiler.
    fn check(&self) -> Result<Vec<CompileError>> {
        let features = format!("pagefold-mm/{}", crate::FEATURES);
        let args = ["check", "-p", "pagefold-mm", "-p", "pagefold-kernel", "--lib", "--features", &features];
        let args = [&args[..], &["--message-format=json"]].concat();
        let output = self.cargo(&args).stderr(Stdio::null()).output()?;
        let mut errors = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let value: Value = serde_json::from_str(line)?;
            let message = &value["message"];
            if message["level"] != "error" {
                continue;
            }
            let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
            let bytes = |span: &Value| {
                let byte = |key: &str| span[key].as_u64().unwrap_or(0) as usize;
                byte("byte_start")..byte("byte_end")
            };
            for span in spans.iter().filter(|span| span["is_primary"] == true) {
                // What a note or a help mentions counts, too: E0004 says there which arm is missing.
                let children = message["children"].as_array().into_iter().flatten();
                let mentioned = children.flat_map(|child| child["spans"].as_array().into_iter().flatten());
                let of_file = spans.iter().chain(mentioned);
                let of_file = of_file.filter(|other| other["file_name"] == span["file_name"]).map(bytes);
                let around = of_file.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
                errors.push(CompileError {
                    file: span["file_name"].as_str().unwrap_or("").to_owned(),
                    at: bytes(span),
                    around: around.unwrap_or_default(),
                    text: message["rendered"].as_str().unwrap_or("").to_owned(),
                });
            }
        }
        ensure!(output.status.success() || !errors.is_empty(), "the copy does not compile");
        Ok(errors)
    }

    /// Build tests; returns the test program. `args`: what cargo needs to know to build one.
    pub fn build_tests(&self, args: &[&str]) -> Result<PathBuf> {
        self.build(&[&["test", "--no-run"], args].concat())
    }

    /// Build the command `pagefold`; returns its path.
    pub fn build_command(&self) -> Result<PathBuf> {
        self.build(&["build", "--release", "-p", "pagefold", "--bin", "pagefold"])
    }

    /// Build a program; returns its path.
    fn build(&self, args: &[&str]) -> Result<PathBuf> {
        let args = [args, &["--message-format=json"]].concat();
        let output = self.cargo(&args).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "`cargo {}` fails", args.join(" "));
        let text = String::from_utf8(output.stdout)?;
        let mut programs = text.lines().rev().filter_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            value["executable"].as_str().map(PathBuf::from)
        });
        programs.next().context("no program was built")
    }

    /// The fixed cases of the soak.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let mut command = Command::new("cargo");
        command.current_dir(&self.root).args(["xtask", "soak", "--list"]).stdin(Stdio::null());
        let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        ensure!(output.status.success(), "`cargo xtask soak --list` fails");
        let text = String::from_utf8(output.stdout)?;
        let case = |(i, words): (usize, &str)| Case {
            name: format!("case {i}"),
            words: words.to_owned(),
            counts: None,
        };
        Ok((1..).zip(text.lines()).map(case).collect())
    }
}

/// Write a file, unless it has this content.
fn write_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("a file must be in a directory"))?;
    fs::write(path, content).with_context(|| path.display().to_string())
}
