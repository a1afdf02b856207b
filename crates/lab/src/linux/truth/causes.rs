//! Known causes of misses: a list that people keep, each with a run that shows it.

use serde::Deserialize;

/// A cause, and the rows that it is of. What is left out is any.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cause {
    kernel: Option<String>,
    program: Option<String>,
    policy: Option<String>,
    count: String,
    cause: String,
}

/// All that are known.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Causes {
    #[serde(default)]
    cause: Vec<Cause>,
}

impl Causes {
    /// From a file: `[[cause]]` with `count` and `cause`, and as many of `kernel`, `program` and `policy` as it is
    /// limited to.
    ///
    /// # Errors
    /// It is no such list.
    pub fn parse(text: &str) -> Result<Causes, toml::de::Error> {
        toml::from_str(text)
    }

    /// The first that is of a row.
    pub fn of(&self, [kernel, program, policy, count]: [&str; 4]) -> Option<&str> {
        let is = |limit: &Option<String>, value: &str| limit.as_deref().is_none_or(|limit| limit == value);
        let found = self.cause.iter().find(|cause| {
            cause.count == count
                && is(&cause.kernel, kernel)
                && is(&cause.program, program)
                && is(&cause.policy, policy)
        });
        found.map(|cause| cause.cause.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_of_the_rows_that_it_is_limited_to() {
        let text = "[[cause]]\npolicy = 'mglru'\ncount = 'pgactivate'\ncause = 'walks'\n\
                    [[cause]]\ncount = 'pgactivate'\ncause = 'any'\n";
        let causes = Causes::parse(text).unwrap();
        assert_eq!(causes.of(["6.12", "zipf", "mglru", "pgactivate"]), Some("walks"));
        assert_eq!(causes.of(["6.12", "zipf", "classic", "pgactivate"]), Some("any"));
        assert_eq!(causes.of(["6.12", "zipf", "mglru", "pgscan"]), None);
        assert!(Causes::parse("[[cause]]\ncount = 'pgscan'\nwhy = 'x'\n").is_err());
    }
}
