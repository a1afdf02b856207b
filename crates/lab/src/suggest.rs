//! "Did you mean": the existing name that is nearest to a wrong one.

/// The message for a `what` named `given` that is not in `names`, with the nearest name if one is near.
pub fn unknown<'a>(what: &str, given: &str, names: impl IntoIterator<Item = &'a str>, list: &str) -> String {
    let hint = match nearest(given, names) {
        Some(name) => format!("; did you mean '{name}'?"),
        None => String::new(),
    };
    format!("unknown {what} '{given}'{hint} ('pagefold list {list}' names them all)")
}

/// The name most similar to `given`, if one is similar enough.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (likeness(given, name), name))
        .filter(|(likeness, _)| *likeness > 0.55)
        // The first of equals, so that the answer is deterministic.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, name)| name)
}

/// The similarity of two names, 0 to 1. A knob may be named without its prefix: `swappiness`.
fn likeness(given: &str, name: &str) -> f64 {
    let given = given.to_lowercase();
    let last = name.rsplit('.').next().unwrap_or(name);
    [name, last]
        .into_iter()
        .map(|name| strsim::normalized_damerau_levenshtein(&given, name))
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_recognised() {
        let names = ["vm.swappiness", "vm.min_free_kbytes", "queue.read_ahead_kb"];
        for (given, expected) in [
            ("vm.swapiness", Some("vm.swappiness")),
            ("swappiness", Some("vm.swappiness")),
            ("VM.Swappiness", Some("vm.swappiness")),
            ("read_ahead", Some("queue.read_ahead_kb")),
            ("xyzzy", None),
        ] {
            assert_eq!(nearest(given, names), expected, "{given}");
        }
    }

    #[test]
    fn message_is_one_line() {
        let message = unknown("knob", "vm.swapiness", ["vm.swappiness"], "knobs");
        assert_eq!(
            message,
            "unknown knob 'vm.swapiness'; did you mean 'vm.swappiness'? ('pagefold list knobs' names them all)"
        );
    }
}
