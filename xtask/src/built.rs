//! The command `pagefold`, and where cargo puts it: that depends on CARGO_TARGET_DIR, on configuration files and on
//! the target.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Build the command; returns its path. On failure cargo has said why.
pub fn pagefold() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "-p", "pagefold", "--bin", "pagefold"]);
    command
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().ok().filter(|output| output.status.success())?;
    executable(&String::from_utf8_lossy(&output.stdout))
}

/// The executable that cargo's messages, one per line, name.
fn executable(messages: &str) -> Option<PathBuf> {
    let (_, rest) = messages.lines().find_map(|line| line.split_once("\"executable\":\""))?;
    let (mut path, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next()? {
            '"' => return Some(path.into()),
            '\\' => path.push(chars.next()?),
            other => path.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"mm"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"pagefold"},"executable":"/else where/a\\b/\"release/pagefold","fresh":true}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some(r#"/else where/a\b/"release/pagefold"#.into()));
        assert_eq!(executable(messages.lines().next().unwrap()), None);
    }
}
