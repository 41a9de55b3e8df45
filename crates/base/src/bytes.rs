//! Byte counts for people.

/// `1536` → `1.5 KB`; decimal units (1 GB = 10⁹ bytes), as drives and peers print them.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if value >= 99.95 { format!("{value:.0} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn switches_unit_where_the_rounded_number_would_need_four_digits() {
        assert_eq!(human(999), "999 B");
        assert_eq!(human(1_500), "1.5 KB");
        assert_eq!(human(999_960), "1.0 MB");
        assert_eq!(human(1_720_000_000), "1.7 GB");
        assert_eq!(human(240_000_000_000), "240 GB");
    }
}
