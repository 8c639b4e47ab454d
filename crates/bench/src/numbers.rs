//! Numbers as tables and pictures show them.
//!
//! Pure functions.

/// A number with three digits that count: `1.23 M`, `45.6 k`, `0.123`.
pub fn show_number(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n >= 999_500.0 => (n / 1e6, " M"),
        n if n >= 9_995.0 => (n / 1e3, " k"),
        n => (n, ""),
    };
    let digits = match scaled {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 || s == 0.0 => 2,
        _ => 3,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0.00"),
            (0.1234, "0.123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (1234.5, "1234"),
            (45_678.0, "45.7 k"),
            (999_999.0, "1.00 M"),
            (12_345_678.0, "12.3 M"),
        ] {
            assert_eq!(show_number(number), text);
        }
    }
}
