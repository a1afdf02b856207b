//! Changes of bytes and of text, independent of the format.

use program::rng::Rng;

/// Boundary values.
pub const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    4095,
    4096,
    65535,
    0x7fff_f000,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    (1 << 47) - 1,
    1 << 47,
    1 << 52,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 4095,
    u64::MAX,
];

/// A random element.
pub fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize].clone()
}

/// A number of any size, often one of [`NUMBERS`] or next to one.
pub fn number(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => pick(rng, &NUMBERS),
        1 => pick(rng, &NUMBERS).wrapping_add(rng.below(3)).wrapping_sub(1),
        2 => rng.bits() >> rng.below(64),
        _ => rng.below(16),
    }
}

fn position(rng: &mut Rng, bytes: &[u8]) -> usize {
    rng.below(bytes.len() as u64 + 1) as usize
}

/// A short range of positions.
fn range(rng: &mut Rng, bytes: &[u8]) -> std::ops::Range<usize> {
    let start = position(rng, bytes);
    start..bytes.len().min(start + 1 + rng.below(16) as usize)
}

/// Change some bytes.
pub fn mutate(rng: &mut Rng, input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    match rng.below(7) {
        0 if !bytes.is_empty() => {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        1 if !bytes.is_empty() => {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = pick(rng, &[0, 1, 0x7f, 0x80, 0xff]);
        }
        2 => {
            let at = range(rng, &bytes);
            bytes.drain(at);
        }
        3 => {
            let (from, to) = (range(rng, &bytes), position(rng, &bytes));
            let copy = bytes[from].to_vec();
            bytes.splice(to..to, copy);
        }
        4 => {
            // A number in the encoding of the trace's formats.
            let mut varint = Vec::new();
            trace::codec::put_varint(&mut varint, number(rng));
            let mut at = range(rng, &bytes);
            if rng.percent(50) {
                at.end = at.start;
            }
            bytes.splice(at, varint);
        }
        5 => {
            let at = position(rng, &bytes);
            bytes.truncate(at);
        }
        _ => {
            let at = position(rng, &bytes);
            bytes.insert(at, rng.bits() as u8);
        }
    }
    bytes
}

/// Change text: replace a number or a word, or duplicate, remove or move a line.
pub fn mutate_text(rng: &mut Rng, input: &[u8], words: &[&str]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(input) else { return mutate(rng, input) };
    match rng.below(8) {
        0 => mutate(rng, input),
        1..5 => replace_token(rng, text, words),
        _ => move_line(rng, text),
    }
}

fn replace_token(rng: &mut Rng, text: &str, words: &[&str]) -> Vec<u8> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let mut tokens: Vec<(usize, usize)> = Vec::new();
    for (at, c) in text.char_indices().filter(|&(_, c)| part(c)) {
        match tokens.last_mut() {
            Some((_, end)) if *end == at => *end += c.len_utf8(),
            _ => tokens.push((at, at + c.len_utf8())),
        }
    }
    // Numbers have boundaries, so most changes are to numbers.
    if rng.percent(75) {
        tokens.retain(|&(at, _)| text[at..].starts_with(|c: char| c.is_ascii_digit()));
    }
    if tokens.is_empty() {
        return mutate(rng, text.as_bytes());
    }
    let (start, end) = pick(rng, &tokens);
    let new = match rng.below(3) {
        0 => number(rng).to_string(),
        1 => format!("{:x}", number(rng)),
        _ => pick(rng, words).to_owned(),
    };
    format!("{}{new}{}", &text[..start], &text[end..]).into_bytes()
}

fn move_line(rng: &mut Rng, text: &str) -> Vec<u8> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    let (from, to) = (rng.below(lines.len() as u64) as usize, rng.below(lines.len() as u64) as usize);
    match rng.below(3) {
        0 => drop(lines.remove(from)),
        1 => lines.insert(to, lines[from]),
        _ => lines.swap(from, to),
    }
    lines.join("\n").into_bytes()
}
