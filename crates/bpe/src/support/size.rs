//! Byte counts as people write and read them: `100G`, `1.5T`, `512 MiB`.

/// Multipliers by first letter; 1024 each step, as the servers count.
const UNITS: [(char, u32); 6] = [
    ('K', 10),
    ('M', 20),
    ('G', 30),
    ('T', 40),
    ('P', 50),
    ('E', 60),
];

/// Parses `100G`, `1.5T`, `512MiB`, `4096`. Returns bytes.
///
/// # Errors
/// A message: not a number, unknown unit, negative, or more than 63 bits.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    let wrong = || {
        format!("`{text}` is not a size: write bytes or a number with K, M, G or T, such as 100G")
    };
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        upper => {
            let mut letters = upper.chars();
            let first = letters.next().ok_or_else(wrong)?;
            if !matches!(letters.as_str(), "" | "B" | "IB") {
                return Err(wrong());
            }
            UNITS
                .iter()
                .find(|(letter, _)| *letter == first)
                .ok_or_else(wrong)?
                .1
        }
    };
    let too_large = || format!("`{text}` is larger than any disk");
    let bytes = if let Ok(whole) = number.parse::<u64>() {
        whole.checked_mul(1 << shift).ok_or_else(too_large)?
    } else {
        // Digits alone fail to parse as u64 only if there are too many.
        if !number.contains('.') && !number.is_empty() {
            return Err(too_large());
        }
        let fraction: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = fraction * (1_u64 << shift) as f64;
        if bytes >= i64::MAX as f64 {
            return Err(too_large());
        }
        bytes.round() as u64
    };
    if bytes > i64::MAX as u64 {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Formats bytes for humans: `1.5 GiB`, `96 MiB`, `4096 B`.
pub fn human(bytes: u64) -> String {
    for (letter, shift) in UNITS.iter().rev() {
        let unit = 1_u64 << shift;
        if bytes >= unit {
            let value = bytes as f64 / unit as f64;
            return if (value - value.round()).abs() < 0.005 || value >= 100.0 {
                format!("{value:.0} {letter}iB")
            } else if value >= 10.0 {
                format!("{value:.1} {letter}iB")
            } else {
                format!("{value:.2} {letter}iB")
            };
        }
    }
    format!("{bytes} B")
}

/// A cache size as users give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    Bytes(u64),
    /// Percentage of the space, 1 to 100.
    Percent(u64),
}

impl CacheSize {
    /// Parses `100G` and `80%`.
    ///
    /// # Errors
    /// A message: neither a size nor a percentage from 1 to 100.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.trim().strip_suffix('%') else {
            return match parse(text)? {
                // The server would parse it as a percentage.
                bytes @ 1..=100 => Err(format!(
                    "`{text}` is so many bytes: write {bytes}% for that part of the room, or a size such as 100G"
                )),
                bytes => Ok(Self::Bytes(bytes)),
            };
        };
        match percent.trim().parse() {
            Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
            _ => Err(format!(
                "`{text}` is not a part of the room: write 1% to 100%, or a size such as 100G"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [
            ("4096", 4096),
            ("100G", 100 << 30),
            ("100g", 100 << 30),
            ("1.5T", 3 << 39),
            ("512MiB", 512 << 20),
            ("512 MB", 512 << 20),
            ("0", 0),
            (" 7K ", 7 << 10),
            (".5G", 1 << 29),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for text in ["", "G", "-1G", "1X", "1GG", "ten", "1..5G", "1GiBs", "0x10"] {
            assert!(parse(text).unwrap_err().contains("not a size"), "{text}");
        }
        for text in ["99999999999999999999", "16E", "9000000T", "8.5E"] {
            assert!(parse(text).unwrap_err().contains("larger"), "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.50 GiB"),
            (100 << 30, "100 GiB"),
            ((10 << 20) + (1 << 19), "10.5 MiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn percentages_differ_from_sizes() {
        assert_eq!(CacheSize::parse("80%"), Ok(CacheSize::Percent(80)));
        assert_eq!(CacheSize::parse(" 5 % "), Ok(CacheSize::Percent(5)));
        assert!(
            CacheSize::parse("80")
                .unwrap_err()
                .contains("80% for that part")
        );
        assert_eq!(CacheSize::parse("0"), Ok(CacheSize::Bytes(0)));
        assert_eq!(CacheSize::parse("1G"), Ok(CacheSize::Bytes(1 << 30)));
        for wrong in ["0%", "101%", "-1%", "%", "1.5%", "80%G", "ten%"] {
            assert!(CacheSize::parse(wrong).is_err(), "{wrong}");
        }
    }
}
