//! Numbers for people: three significant digits and a unit.

/// `value` of `unit`, scaled: `12.3 k`, `1.20 M`, `250 us`, `1.50 GiB`.
pub fn number(value: f64, unit: &str) -> String {
    match unit {
        "s" => scaled(value * 1e9, 1000.0, &[" ns", " us", " ms", " s"]),
        "us" => scaled(value * 1e3, 1000.0, &[" ns", " us", " ms", " s"]),
        "ns" => scaled(value, 1000.0, &[" ns", " us", " ms", " s"]),
        "bytes" => bytes(value),
        "KiB" => bytes(value * 1024.0),
        "%" => format!("{value:.2} %"),
        _ => scaled(value, 1000.0, &["", " k", " M", " G", " T"]),
    }
}

/// Bytes with a binary unit.
pub fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Divide by `step` until at most three or four digits are left of the point.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    for (at, unit) in units.iter().enumerate() {
        let last = at + 1 == units.len();
        // 999.6 would be printed as 1000, so it belongs to the next unit.
        if last || value.abs() < step - 0.5 {
            return format!("{}{unit}", three_digits(value, at == 0));
        }
        value /= step;
    }
    unreachable!("the last unit always returns")
}

/// Three significant digits; whole numbers of the smallest unit are not rounded.
fn three_digits(value: f64, smallest: bool) -> String {
    let size = value.abs();
    if (smallest && value.fract() == 0.0) || size >= 99.95 {
        // Adding zero turns -0 into 0.
        format!("{:.0}", value + 0.0)
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A whole number with its digits in groups of three: `976,685,109`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of things: `1 thread`, `1,234 threads`.
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A share in per cent, with one decimal if it is no whole number: `50 %`, `50.5 %`.
pub fn share(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    if tenths % 10.0 == 0.0 { format!("{:.0} %", tenths / 10.0) } else { format!("{:.1} %", tenths / 10.0) }
}

/// Text indented by `indent` characters and wrapped at `columns`.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width == 0 || indent + width + 1 + length > columns {
            out.push_str(if width == 0 { "" } else { "\n" });
            out.extend(std::iter::repeat_n(' ', indent));
            width = length;
        } else {
            out.push(' ');
            width += 1 + length;
        }
        out.push_str(word);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// The width of lines where no terminal says another.
pub const WIDTH: usize = 100;

/// Text with its sentences wrapped at `width`. Lines of tables, which have several gaps, stay as they are; what follows
/// a word and a gap, as in `machine  laptop`, continues behind the gap. A `command` is there to be pasted, so it stays
/// as it is, too.
fn fitted(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let end = line.trim_end();
        let gap = end.trim_start().find("  ").map(|at| at + end.len() - end.trim_start().len());
        let behind = gap.map(|at| at + end[at..].len() - end[at..].trim_start().len());
        let sentence = behind.is_none_or(|at| at <= 20 && !end[at..].contains("  "));
        if end.chars().count() <= width || !sentence || end.starts_with("command  ") {
            out.push_str(line);
            continue;
        }
        let (head, rest) = end.split_at(behind.unwrap_or(0));
        out.push_str(head);
        out.push_str(wrapped(rest, behind.unwrap_or(2), width).trim_start());
    }
    out
}

/// What `render` makes of a width, with its sentences wrapped there.
pub fn rendered(width: usize, render: impl FnOnce(usize) -> String) -> String {
    fitted(&render(width), width)
}

/// The seeds of runs: `seed 1`, `seeds 1..3`.
pub fn seeds(first: u64, runs: u32) -> String {
    match runs {
        0 | 1 => format!("seed {first}"),
        runs => format!("seeds {first}..{}", first + u64::from(runs) - 1),
    }
}

/// A signed percentage.
pub fn percent(value: f64) -> String {
    if value.abs() >= 9999.5 { format!("{value:+.1e}%") } else { format!("{:+.2}%", value + 0.0) }
}

/// An interval of percentages, without the sign that takes room in each row.
pub fn percents(ends: [f64; 2]) -> String {
    let [low, high] = ends.map(|end| percent(end).trim_end_matches('%').to_owned());
    format!("[{low}, {high}]")
}

/// A change for a cell of a table: in per cent, or as the ratio where neither direction is better. `*` marks one that
/// is significant; all others have a space there.
pub fn change(percents: Option<f64>, ratio: Option<f64>, significant: bool) -> String {
    let text = match (percents, ratio) {
        (Some(change), _) => percent(change),
        (None, Some(ratio)) => format!("x{ratio:.2}"),
        (None, None) => "n/a".to_owned(),
    };
    text + if significant { "*" } else { " " }
}

/// Today's date, in UTC, as `2026-01-31`.
pub fn today() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// The date of a day since 1970-01-01.
fn date(mut day: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_three_digits_and_a_prefix() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (7.0, "7"),
            (7.5, "7.50"),
            (999.0, "999"),
            (999.6, "1.00 k"),
            (1000.0, "1.00 k"),
            (12_345.0, "12.3 k"),
            (123_456.0, "123 k"),
            (999_600.0, "1.00 M"),
            (1_200_000.0, "1.20 M"),
            (3.4e9, "3.40 G"),
            (5e15, "5000 T"),
            (-12_345.0, "-12.3 k"),
        ] {
            assert_eq!(number(value, "pages"), expected, "{value}");
        }
    }

    #[test]
    fn times_and_bytes_have_their_units() {
        assert_eq!(number(1.2, "s"), "1.20 s");
        assert_eq!(number(0.001_5, "s"), "1.50 ms");
        assert_eq!(number(2.5e-7, "s"), "250 ns");
        assert_eq!(number(12_300.0, "ns"), "12.3 us");
        assert_eq!(number(4321.0, "s"), "4321 s");
        assert_eq!(number(512.0, "KiB"), "512 KiB");
        assert_eq!(number(1536.0, "KiB"), "1.50 MiB");
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes((256u64 << 20) as f64), "256 MiB");
    }

    #[test]
    fn digits_are_grouped_by_three() {
        for (value, expected) in
            [(0, "0"), (12, "12"), (999, "999"), (1000, "1,000"), (976_685_109, "976,685,109")]
        {
            assert_eq!(grouped(value), expected);
        }
        assert_eq!([0.5, 0.505, 0.49996, 1.1].map(share), ["50 %", "50.5 %", "50 %", "110 %"]);
        assert_eq!(plural(1, "process", "processes"), "1 process");
        assert_eq!(plural(1200, "process", "processes"), "1,200 processes");
    }

    #[test]
    fn sentences_are_wrapped_and_tables_are_not() {
        let table = "metric        classic  lazy\n";
        assert_eq!(fitted(table, 20), table);
        let head = "machine  one with a long name\nnote: some more words than fit";
        assert_eq!(
            fitted(head, 20),
            "machine  one with a\n         long name\nnote: some more\n  words than fit\n"
        );
        let command = "command  ./program --with arguments\n";
        assert_eq!(fitted(command, 20), command);
    }

    #[test]
    fn percentages_carry_their_sign() {
        assert_eq!(percent(8.333), "+8.33%");
        assert_eq!(percent(-0.0), "+0.00%");
        assert_eq!(percent(-123_456.0), "-1.2e5%");
    }

    #[test]
    fn dates_count_leap_years() {
        for (day, expected) in [
            (0, "1970-01-01"),
            (31, "1970-02-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (20_818, "2026-12-31"),
        ] {
            assert_eq!(date(day), expected);
        }
    }
}
