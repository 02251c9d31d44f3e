//! Values as people write them in Kubernetes objects: durations, "number or percent", quantities.

use std::{fmt, str::FromStr, time::Duration};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::quote::quoted;

/// Why a value could not be read. The message says what was expected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// Not a duration.
    #[error("`{0}` is not a duration: write for example 15s, 1m30s or 500ms")]
    Duration(String),
    /// Not a whole number or a percentage.
    #[error(
        "`{0}` is neither a whole number nor a percentage from 0% to 100%: write for example 1 or 25%"
    )]
    IntOrPercent(String),
    /// Not a Kubernetes quantity.
    #[error("`{0}` is not a quantity: write for example 500m, 2 or 1Gi")]
    Quantity(String),
    /// Not a limit of memory.
    #[error(
        "`{0}` is not Auto, Off or an amount of memory: write for example Auto, \"Off\", 8192Mi or 8Gi"
    )]
    MemoryLimit(String),
}

/// Parses a duration: Go's and Prometheus' syntax (`1h30m`, `15s`, `500ms`, `1d`), or a plain number of seconds.
///
/// Units: `y` (365 days), `w`, `d`, `h`, `m`, `s`, `ms`, `us`, `ns`. Fractions are allowed as in Go (`1.5h`).
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let fail = || UnitError::Duration(quoted(text).into_owned());
    let trimmed = text.trim();
    if let Ok(seconds) = trimmed.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| fail());
    }
    let (mut total, mut rest) = (0.0_f64, trimmed);
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(fail)?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        total +=
            number.parse::<f64>().map_err(|_| fail())? * unit_seconds(unit).ok_or_else(fail)?;
        rest = next;
    }
    if trimmed.is_empty() {
        return Err(fail());
    }
    Duration::try_from_secs_f64(total).map_err(|_| fail())
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "y" => 365.0 * 86_400.0,
        "w" => 7.0 * 86_400.0,
        "d" => 86_400.0,
        "h" => 3_600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
}

/// A scrape interval or time limit that keeps the spelling of its author, so that `60s` is not rewritten to `1m` in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeDuration {
    text: String,
    value: Duration,
}

impl ScrapeDuration {
    /// The value.
    pub fn as_duration(&self) -> Duration {
        self.value
    }

    /// The spelling, as it goes into a ServiceMonitor.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whole seconds, spelled `<n>s`.
    pub fn from_secs(seconds: u64) -> Self {
        Self {
            text: format!("{seconds}s"),
            value: Duration::from_secs(seconds),
        }
    }
}

impl FromStr for ScrapeDuration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let value = parse_duration(text)?;
        let plain_number = text.trim().chars().all(|c| c.is_ascii_digit());
        let text = if plain_number {
            format!("{}s", text.trim())
        } else {
            text.trim().to_owned()
        };
        Ok(Self { text, value })
    }
}

impl fmt::Display for ScrapeDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ScrapeDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ScrapeDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// How much of a card's memory a share is told to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// What is there, divided by the shares.
    #[default]
    Auto,
    /// No limit.
    Off,
    /// So many MiB; never 0, which the limiting libraries read as no limit.
    MiB(u32),
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("Auto"),
            Self::Off => f.write_str("Off"),
            Self::MiB(amount) => write!(f, "{amount}Mi"),
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let amount = |number: &str, unit: u32| {
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.then(|| number.parse::<u32>().ok()).flatten()?;
            number.checked_mul(unit).filter(|amount| *amount > 0)
        };
        match text {
            "Auto" => return Ok(Self::Auto),
            "Off" => return Ok(Self::Off),
            _ => {}
        }
        let gibibytes = text
            .strip_suffix("Gi")
            .and_then(|number| amount(number, 1024));
        let mebibytes = text.strip_suffix("Mi").and_then(|number| amount(number, 1));
        gibibytes
            .or(mebibytes)
            .map(Self::MiB)
            .ok_or_else(|| UnitError::MemoryLimit(quoted(text).into_owned()))
    }
}

impl Serialize for MemoryLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number of things, or a share of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IntOrPercent {
    /// So many.
    Int(u32),
    /// So many of a hundred, 0 to 100.
    Percent(u8),
}

impl IntOrPercent {
    /// The number that this means for `total` things; percentages round up, as Kubernetes does for `maxUnavailable`.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Int(n) => n as usize,
            Self::Percent(p) => (total * usize::from(p)).div_ceil(100),
        }
    }

    /// As Kubernetes writes it in an object.
    pub fn to_int_or_string(self) -> IntOrString {
        match self {
            Self::Int(n) => IntOrString::Int(i32::try_from(n).unwrap_or(i32::MAX)),
            Self::Percent(p) => IntOrString::String(format!("{p}%")),
        }
    }
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Percent(p) => write!(f, "{p}%"),
        }
    }
}

impl FromStr for IntOrPercent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let fail = || UnitError::IntOrPercent(quoted(text).into_owned());
        let trimmed = text.trim();
        match trimmed.strip_suffix('%') {
            Some(number) => match number.parse::<u8>() {
                Ok(percent) if percent <= 100 => Ok(Self::Percent(percent)),
                _ => Err(fail()),
            },
            None => trimmed.parse().map(Self::Int).map_err(|_| fail()),
        }
    }
}

impl TryFrom<&IntOrString> for IntOrPercent {
    type Error = UnitError;

    fn try_from(value: &IntOrString) -> Result<Self, UnitError> {
        match value {
            IntOrString::Int(n) => u32::try_from(*n)
                .map(Self::Int)
                .map_err(|_| UnitError::IntOrPercent(n.to_string())),
            IntOrString::String(text) => text.parse(),
        }
    }
}

/// The value of a Kubernetes quantity as a number (`500m` is 0.5, `1Ki` is 1024).
pub fn quantity(value: &Quantity) -> Result<f64, UnitError> {
    parse_quantity(&value.0)
}

/// The value of a whole-numbered quantity such as a device count; `None` when it cannot be read or is negative.
pub fn count(value: &Quantity) -> Option<u32> {
    let number = quantity(value).ok()?;
    if (0.0..=f64::from(u32::MAX)).contains(&number) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked; device counts are whole"
        )]
        return Some(number as u32);
    }
    None
}

/// Parses a quantity: a decimal number with an optional SI (`n u m k M G T P E`), binary (`Ki` .. `Ei`) or exponent suffix.
pub fn parse_quantity(text: &str) -> Result<f64, UnitError> {
    let fail = || UnitError::Quantity(quoted(text).into_owned());
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))
        .unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(end);
    let scale = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        _ => return finite(trimmed, 1.0).ok_or_else(fail),
    };
    finite(number, scale).ok_or_else(fail)
}

/// More digits than a number has room for are no amount of anything.
fn finite(number: &str, scale: f64) -> Option<f64> {
    let value = number.parse::<f64>().ok()? * scale;
    value.is_finite().then_some(value)
}
