//! Parses durations and byte counts with units: `0.5ms`, `2s`, `125MB`, `256KiB`.

use std::time::Duration;

/// Parses a duration with a unit: `ns`, `us`, `ms`, `s`, `m` or `h`. A plain `0` is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "" if number == 0.0 => 0.0,
        _ => {
            return Err(format!(
                "`{text}` is not a duration: write a number with ns, us, ms, s, m or h, such as 0.5ms"
            ));
        }
    };
    Duration::try_from_secs_f64(seconds).map_err(|e| format!("`{text}` is not a duration: {e}"))
}

/// Parses a number of bytes: decimal units `KB`, `MB`, `GB`, binary units `KiB`, `MiB`, `GiB`, or plain bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.trim_end_matches("/s") {
        "" | "B" => 1.0,
        "KB" | "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" | "K" | "k" => 1024.0,
        "MiB" | "M" => 1024.0 * 1024.0,
        "GiB" | "G" => 1024.0 * 1024.0 * 1024.0,
        _ => {
            return Err(format!(
                "`{text}` is not a size: write a number with KB, MB, GB, KiB, MiB or GiB, such as 125MB"
            ));
        }
    };
    Ok((number * factor).round() as u64)
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number = text[..end]
        .parse::<f64>()
        .map_err(|_| format!("`{text}` does not begin with a number"))?;
    Ok((number, text[end..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("2 s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(parse_duration("5").is_err());
        assert!(parse_duration("-1s").is_err());
        assert!(parse_duration("fast").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("125MB"), Ok(125_000_000));
        assert_eq!(parse_bytes("125MB/s"), Ok(125_000_000));
        assert_eq!(parse_bytes("256KiB"), Ok(262_144));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("12 parsecs").is_err());
    }
}
