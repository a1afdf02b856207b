//! Known causes of misses: a list that people keep, each with a run that shows it.

use serde::Deserialize;
use serde::de::Error;

/// A cause, and the rows that it is of. What is left out is any.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    kernel: Option<String>,
    program: Option<String>,
    policy: Option<String>,
    count: String,
    /// What it is.
    pub cause: String,
    /// The command that shows it.
    pub run: String,
}

/// All that are known.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Causes {
    #[serde(default)]
    cause: Vec<Cause>,
}

impl Causes {
    /// From a file: `[[cause]]` with `count`, `cause`, `run`, and as many of `kernel`, `program` and `policy` as it is
    /// limited to. One run says nothing of all programs under all policies.
    ///
    /// # Errors
    /// It is no such list.
    pub fn parse(text: &str) -> Result<Causes, toml::de::Error> {
        let causes: Causes = toml::from_str(text)?;
        let empty = |text: &String| text.trim().is_empty();
        for cause in &causes.cause {
            let missing = match cause {
                _ if empty(&cause.run) => "'run' is empty",
                Cause { program: None, policy: None, .. } => "'program' or 'policy' is missing",
                _ => continue,
            };
            return Err(toml::de::Error::custom(format!("the cause of '{}': {missing}", cause.count)));
        }
        Ok(causes)
    }

    /// The first that is of a row.
    pub fn of(&self, [kernel, program, policy, count]: [&str; 4]) -> Option<&Cause> {
        let is = |limit: &Option<String>, value: &str| limit.as_deref().is_none_or(|limit| limit == value);
        self.cause.iter().find(|cause| {
            cause.count == count
                && is(&cause.kernel, kernel)
                && is(&cause.program, program)
                && is(&cause.policy, policy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_of_the_rows_that_it_is_limited_to() {
        let text = "[[cause]]\npolicy = 'mglru'\ncount = 'pgactivate'\ncause = 'walks'\nrun = 'pagefold linux zipf'\n\
                    [[cause]]\nprogram = 'zipf'\ncount = 'pgactivate'\ncause = 'any'\nrun = 'pagefold linux zipf'\n";
        let causes = Causes::parse(text).unwrap();
        let of = |row| causes.of(row).map(|cause| cause.cause.as_str());
        assert_eq!(of(["6.12", "zipf", "mglru", "pgactivate"]), Some("walks"));
        assert_eq!(of(["6.12", "zipf", "classic", "pgactivate"]), Some("any"));
        assert_eq!(of(["6.12", "zipf", "mglru", "pgscan"]), None);
        assert_eq!(of(["6.12", "lsm", "classic", "pgactivate"]), None);
    }

    #[test]
    fn a_cause_needs_a_run_and_a_program_or_policy() {
        let whole =
            "[[cause]]\ncount = 'pgscan'\ncause = 'x'\npolicy = 'mglru'\nrun = 'pagefold linux zipf'\n";
        assert!(Causes::parse(whole).is_ok());
        for (part, instead) in [
            ("run = 'pagefold linux zipf'\n", ""),
            ("'pagefold linux zipf'", "' '"),
            ("policy = 'mglru'\n", ""),
            ("policy = 'mglru'", "kernel = '6.12'"),
            ("policy", "why"),
        ] {
            assert!(Causes::parse(&whole.replace(part, instead)).is_err(), "{part} -> {instead}");
        }
    }
}
