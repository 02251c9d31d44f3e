//! Durations, percentages, quantities.

use std::time::Duration;

use tessera_api::units::{
    IntOrPercent, MemoryLimit, ScrapeDuration, parse_duration, parse_quantity,
};

#[test]
fn durations() {
    let good = [
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("30", 30_000),
        ("0.5", 500),
        ("1.5h", 5_400_000),
        ("1d", 86_400_000),
        ("0s", 0),
        (" 15s ", 15_000),
    ];
    for (text, millis) in good {
        assert_eq!(
            parse_duration(text),
            Ok(Duration::from_millis(millis)),
            "{text}"
        );
    }
    for text in ["", "s", "10x", "-5s", "1h-30m", "ten", "1..5s", "1e400"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert_eq!(
        "15".parse::<ScrapeDuration>().map(|d| d.to_string()),
        Ok("15s".to_owned())
    );
    assert_eq!(
        "60s".parse::<ScrapeDuration>().map(|d| d.to_string()),
        Ok("60s".to_owned())
    );
}

#[test]
fn numbers_or_percentages() {
    let cases = [("0", 0), ("3", 3), ("25%", 25), ("0%", 0), ("100%", 100)];
    for (text, of_hundred) in cases {
        assert_eq!(
            text.parse::<IntOrPercent>().map(|v| v.of(100)),
            Ok(of_hundred),
            "{text}"
        );
    }
    assert_eq!(IntOrPercent::Percent(25).of(3), 1, "rounds up");
    assert_eq!(IntOrPercent::Percent(25).of(0), 0);
    for text in ["", "%", "-1", "101%", "2.5%", "half"] {
        assert!(text.parse::<IntOrPercent>().is_err(), "{text}");
    }
}

#[test]
fn quantities() {
    for (text, value) in [
        ("500m", 0.5),
        ("2", 2.0),
        ("1Ki", 1024.0),
        ("1Gi", 1_073_741_824.0),
        ("1k", 1000.0),
        ("1e3", 1000.0),
        ("1E", 1e18),
    ] {
        let got = parse_quantity(text).expect(text);
        assert!((got - value).abs() < 1e-9 * value, "{text}: {got}");
    }
    let endless = "9".repeat(400);
    for text in ["", "one", "1KiB", "--1", "NaN", "inf", "1e999", &endless] {
        assert!(parse_quantity(text).is_err(), "{text}");
    }
}

#[test]
fn limits_of_memory() {
    let cases = [
        ("Auto", Some(MemoryLimit::Auto)),
        ("Off", Some(MemoryLimit::Off)),
        ("8192Mi", Some(MemoryLimit::MiB(8192))),
        ("8Gi", Some(MemoryLimit::MiB(8192))),
        ("0Mi", None),
        ("0Gi", None),
        ("-1Mi", None),
        ("+1Mi", None),
        ("8G", None),
        ("8192", None),
        ("Mi", None),
        ("1.5Gi", None),
        ("9999999Gi", None),
        ("auto", None),
        ("", None),
    ];
    for (text, want) in cases {
        let found: Result<MemoryLimit, _> = text.parse();
        assert_eq!(found.as_ref().ok(), want.as_ref(), "{text}");
        if let Ok(found) = found {
            assert_eq!(found.to_string().parse(), Ok(found), "{text}");
        }
    }
}
