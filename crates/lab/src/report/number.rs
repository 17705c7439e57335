//! Numbers as people read them.

/// Four significant digits, thousands apart: `0.01235`, `12.35`, `1,235`, `12,345,678`.
pub fn format_number(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let magnitude = number.abs();
    let decimals = match magnitude {
        m if m == 0.0 || m >= 999.5 || (m.fract() == 0.0 && m < 1e15) => 0,
        m if m >= 99.95 => 1,
        m if m >= 9.995 => 2,
        m if m >= 0.9995 => 3,
        m if m >= 0.099_95 => 4,
        m if m >= 0.009_995 => 5,
        m if m >= 1e-6 => 7,
        _ => return format!("{number:.3e}"),
    };
    let plain = format!("{number:.decimals$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{fraction}") }
}

/// Bytes in binary units: `512 B`, `1.5 KiB`, `64 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", format_number((value * 100.0).round() / 100.0), UNITS[unit])
}

/// A time in the unit that fits: `350 ns`, `12.5 us`, `3.2 ms`, `47 s`.
pub fn format_nanos(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} us", format_number(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", format_number(value / 1e6)),
        _ => format!("{} s", format_number(value / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_thousands_apart() {
        for (number, text) in [
            (0.0, "0"),
            (5.0, "5"),
            (1234.56, "1,235"),
            (12_345_678.0, "12,345,678"),
            (12.3456, "12.35"),
            (123.456, "123.5"),
            (1.23456, "1.235"),
            (0.123_456, "0.1235"),
            (0.012_345_6, "0.01235"),
            (-1234.0, "-1,234"),
            (-0.5, "-0.5000"),
            (f64::NAN, "-"),
            (3e-9, "3.000e-9"),
        ] {
            assert_eq!(format_number(number), text);
        }
    }

    #[test]
    fn bytes_and_times_choose_their_unit() {
        assert_eq!(format_bytes(512), "512 B");
        assert_eq!(format_bytes(1536), "1.500 KiB");
        assert_eq!(format_bytes(64 << 20), "64 MiB");
        assert_eq!(format_nanos(350), "350 ns");
        assert_eq!(format_nanos(12_500), "12.50 us");
        assert_eq!(format_nanos(47_000_000_000), "47 s");
    }
}
