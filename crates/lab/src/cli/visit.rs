//! The option for looks at the generations of MGLRU.

use crate::engine::Visit;

/// Parse `end`, `TIME` or `TIME:COMMANDS`.
pub(super) fn parse_visit(text: &str) -> Result<Visit, String> {
    let (time, commands) = text.split_once(':').unwrap_or((text, ""));
    let unit = time.trim_start_matches(|c: char| c.is_ascii_digit());
    let nanos = match unit {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1000,
        "ns" => 1,
        _ => 0,
    };
    let number: Option<u64> = time.strip_suffix(unit).and_then(|digits| digits.parse().ok());
    let at = match (time, number.and_then(|number| number.checked_mul(nanos))) {
        ("end", _) if commands.is_empty() => None,
        (_, Some(at)) if nanos > 0 => Some(at),
        _ => return Err(format!("'{text}' is no look at generations; write 100ms, 2s:'+ 0 0 3' or end")),
    };
    Ok(Visit { at, commands: commands.to_owned(), full: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_has_a_time_and_optional_commands() {
        let visit = |at, commands: &str| Ok(Visit { at, commands: commands.to_owned(), full: false });
        assert_eq!(parse_visit("100ms"), visit(Some(100_000_000), ""));
        assert_eq!(parse_visit("2s:+ 0 0 3;- 0 0 1"), visit(Some(2_000_000_000), "+ 0 0 3;- 0 0 1"));
        assert_eq!(parse_visit("end"), visit(None, ""));
        for wrong in ["", "100", "ms", "1m", "end:+ 0 0 3", "-1s", "99999999999999999999s"] {
            assert!(parse_visit(wrong).is_err(), "{wrong}");
        }
    }
}
