//! Sizes and rates as people write and read them.
//!
//! Powers of 1024 are `KiB MiB GiB TiB`, and `K M G T` as for `ulimit` and `dd`; powers of 1000 are `KB MB GB TB`; a bare number is bytes.

const UNITS: [(&str, u64); 13] = [
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Reads `64MiB`, `1.5 GB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let factor = if unit.is_empty() {
        1
    } else {
        let known = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name));
        known.map(|&(_, factor)| factor).ok_or_else(|| {
            format!(
                "`{unit}` is not a unit of size; use KiB, MiB, GiB, TiB (or K, M, G, T), KB, MB, GB or TB"
            )
        })?
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"));
    }
    let value = number
        .parse::<f64>()
        .ok()
        .filter(|_| number.starts_with(|c: char| c.is_ascii_digit()))
        .ok_or_else(|| {
            format!("`{text}` is not a size; write a number and a unit, such as 64MiB")
        })?;
    let bytes = value * factor as f64;
    // Whole numbers above were exact; a fraction past 2^53 could only be rounded.
    if bytes >= 9e15 { Err(format!("`{text}` is too large")) } else { Ok(bytes as u64) }
}

/// `37.2 MiB`.
pub fn show_bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// `1,234,567`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 record`, `1,234 records`: the noun takes an s but for one.
pub fn show_number_of(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", show_count(count))
}

/// `1.25 M/s`, `830 k/s`, `12 /s`; a dash if no time has passed.
pub fn show_rate(count: u64, seconds: f64) -> String {
    if seconds <= 0.0 {
        return "-".to_owned();
    }
    show_per_second(count as f64 / seconds)
}

/// A rate that is known already, as [`show_rate`] shows it.
pub fn show_per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 999_500.0 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 9_950.0 => format!("{:.0} k/s", rate / 1e3),
        rate if rate >= 999.5 => format!("{:.1} k/s", rate / 1e3),
        rate => format!("{rate:.0} /s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64MiB", 64 << 20),
            (" 64 mib ", 64 << 20),
            ("1.5KiB", 1536),
            ("512k", 512 << 10),
            ("64M", 64 << 20),
            ("1.5G", 1536 << 20),
            ("2 T", 2 << 40),
            ("3b", 3),
            ("2GB", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in ["", "MiB", "-1", "1.2.3MiB", "64 furlongs", ".5MiB", "99999999999TiB", "nan"] {
            let words = parse_bytes(text).unwrap_err();
            assert!(words.contains(text.trim()) || words.contains("furlongs"), "{text}: {words}");
        }
    }

    #[test]
    fn numbers_are_shown_short() {
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1 << 20), "1.0 MiB");
        assert_eq!(show_bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(show_count(0), "0");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(123), "123");
        assert_eq!(show_number_of(0, "record"), "0 records");
        assert_eq!(show_number_of(1, "record"), "1 record");
        assert_eq!(show_number_of(1_234, "record"), "1,234 records");
        assert_eq!(show_rate(2_500_000, 2.0), "1.25 M/s");
        assert_eq!(show_rate(5_000, 1.0), "5.0 k/s");
        assert_eq!(show_rate(5, 0.0), "-");
    }
}
