//! The exporter's metrics file, checked before a pod reads it: a line that the exporter cannot read puts every one of its pods into
//! a crash loop, and leaves the cluster blind.
//!
//! The rules are the exporter's own (NVIDIA/dcgm-exporter `internal/pkg/counters/counter_config.go`): Go's `encoding/csv` with `#` as
//! comment, three columns a record, blanks around values trimmed, a type that it knows. Whether a field exists depends on the build
//! of the image, so a name is checked by its form only.

use std::fmt;

/// Types that the exporter knows (`promMetricType` in its `variables.go`).
const TYPES: [&str; 5] = ["gauge", "counter", "histogram", "summary", "label"];

/// Why a metrics file cannot be used, with the number of the line, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvError {
    /// The line; 0 when it is about the file as a whole.
    pub line: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not three columns.
    Columns(usize),
    /// A type that the exporter does not know.
    Type(String),
    /// Not the name of a DCGM field.
    Name(String),
    /// A quote inside of a value that does not begin with one. A blank before the quote is enough for that.
    BareQuote,
    /// A quoted value that does not end, or goes on after its end.
    OpenQuote,
    /// A help text of more than one line.
    LongHelp,
    /// Not a single metric.
    Empty,
    /// Not text: a control character.
    NotText,
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.problem {
            Problem::Columns(found @ 4..) => write!(
                f,
                "three columns (field, type, help) are needed, not {found}; a help with a comma in it must stand in double quotes"
            ),
            Problem::Columns(found) => write!(f, "three columns (field, type, help) are needed, not {found}"),
            Problem::Type(found) => write!(f, "unknown type `{}` (use gauge, counter or label)", shorten(found)),
            Problem::Name(found) => write!(f, "`{}` is not a DCGM field: names begin with DCGM_FI_ or DCGM_EXP_", shorten(found)),
            Problem::BareQuote => f.write_str("a double quote within a value; a quoted value must begin right after the comma, without a blank"),
            Problem::OpenQuote => f.write_str("a quoted value that does not end where its column ends"),
            Problem::LongHelp => f.write_str("a help text of several lines; Prometheus reads one"),
            Problem::Empty => f.write_str("no metric in it"),
            Problem::NotText => f.write_str("control characters: this is not a text file"),
        }
    }
}

/// A value as it may stand in a message.
fn shorten(text: &str) -> String {
    let mut cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    cut
}

/// Checks a metrics file. Returns the number of metrics, or the first line that the exporter could not read.
pub fn check(text: &str) -> Result<usize, CsvError> {
    let mut metrics = 0;
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        let fail = |problem| CsvError {
            line: number,
            problem,
        };
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(fail(Problem::NotText));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let record = record(line, &mut lines).map_err(fail)?;
        check_record(&record).map_err(fail)?;
        metrics += 1;
    }
    if metrics == 0 {
        return Err(CsvError {
            line: 0,
            problem: Problem::Empty,
        });
    }
    Ok(metrics)
}

fn check_record(record: &[String]) -> Result<(), Problem> {
    let trimmed: Vec<&str> = record.iter().map(|value| value.trim_matches(' ')).collect();
    let [name, kind, help] = trimmed.as_slice() else {
        return Err(Problem::Columns(trimmed.len()));
    };
    if !is_field(name) {
        return Err(Problem::Name((*name).to_owned()));
    }
    if !TYPES.contains(kind) {
        return Err(Problem::Type((*kind).to_owned()));
    }
    if help.contains('\n') {
        return Err(Problem::LongHelp);
    }
    Ok(())
}

/// DCGM's and the exporter's own names, and the lower-case ones of DCGM 1 that the exporter still maps.
fn is_field(name: &str) -> bool {
    let rest_is = |prefix: &str, accepted: fn(char) -> bool| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty()
                && rest
                    .chars()
                    .all(|c| accepted(c) || c == '_' || c.is_ascii_digit())
        })
    };
    let upper = |c: char| c.is_ascii_uppercase();
    let lower = |c: char| c.is_ascii_lowercase();
    rest_is("DCGM_FI_", upper) || rest_is("DCGM_EXP_", upper) || rest_is("dcgm_", lower)
}

/// One record that begins with `line`; a quoted value may take further `lines`.
fn record<'a>(
    line: &str,
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
) -> Result<Vec<String>, Problem> {
    let mut values = Vec::new();
    let mut rest = line.to_owned();
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (value, more) = match rest.split_once(',') {
                Some((value, more)) => (value.to_owned(), Some(more.to_owned())),
                None => (rest, None),
            };
            if value.contains('"') {
                return Err(Problem::BareQuote);
            }
            values.push(value);
            match more {
                Some(more) => rest = more,
                None => return Ok(values),
            }
            continue;
        };
        let mut open = quoted.to_owned();
        let (value, after) = loop {
            if let Some(end) = closing_quote(&open) {
                let (value, after) = open.split_at(end);
                break (
                    value.replace("\"\"", "\""),
                    after.trim_start_matches('"').to_owned(),
                );
            }
            let (_, next) = lines.next().ok_or(Problem::OpenQuote)?;
            open.push('\n');
            open.push_str(next);
        };
        values.push(value);
        match after.strip_prefix(',') {
            Some(more) => more.clone_into(&mut rest),
            None if after.is_empty() => return Ok(values),
            None => return Err(Problem::OpenQuote),
        }
    }
}

/// Where a quoted value ends; two quotes in a row stand for one.
fn closing_quote(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        if c == '"' && chars.next_if(|(_, next)| *next == '"').is_none() {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_exporter_reads() {
        let cases = [
            ("DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).", 1),
            (
                "# comment, with, many, columns\n\nDCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder\n",
                1,
            ),
            ("DCGM_FI_DEV_GPU_TEMP,gauge,\"temperature, in C\"", 1),
            (
                "DCGM_FI_DEV_GPU_TEMP,gauge,\"the \"\"hot\"\" one\"\nDCGM_FI_DRIVER_VERSION,label,",
                2,
            ),
            (
                "DCGM_EXP_XID_ERRORS_COUNT,gauge,x\r\nDCGM_FI_PROF_SM_ACTIVE,gauge,y\r\n",
                2,
            ),
            ("dcgm_sm_clock,gauge,SM clock", 1),
        ];
        for (text, metrics) in cases {
            assert_eq!(check(text), Ok(metrics), "{text:?}");
        }
    }

    #[test]
    fn what_would_crash_it() {
        let cases = [
            ("", "no metric in it"),
            ("# only\n#comments\n", "no metric in it"),
            (
                "DCGM_FI_DEV_GPU_TEMP, gauge",
                "line 1: three columns (field, type, help) are needed, not 2",
            ),
            (
                "\n\nDCGM_FI_DEV_GPU_TEMP, gauge, temperature, in C",
                "line 3: three columns (field, type, help) are needed, not 4",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP, guage, temperature",
                "line 1: unknown type `guage`",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP, gauge, a\nDCGM_DEV_X, gauge, b",
                "line 2: `DCGM_DEV_X` is not a DCGM field",
            ),
            (
                "DCGM_FI_, gauge, a",
                "line 1: `DCGM_FI_` is not a DCGM field",
            ),
            (
                " # a comment, that, is none",
                "line 1: `# a comment` is not a DCGM field",
            ),
            (
                "   ",
                "line 1: three columns (field, type, help) are needed, not 1",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP, gauge, \"a, b\"",
                "line 1: a double quote within a value",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP,gauge,\"a, b",
                "line 1: a quoted value that does not end",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP,gauge,\"a\" b",
                "line 1: a quoted value that does not end",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP,gauge,\"a\nb\"",
                "line 1: a help text of several lines",
            ),
            (
                "DCGM_FI_DEV_GPU_TEMP,gauge,a\n\u{0}\u{1}",
                "line 2: control characters",
            ),
        ];
        for (text, message) in cases {
            let error = check(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn garbage_never_panics_and_long_values_are_cut() {
        for text in [
            "\"",
            "\"\"",
            ",",
            "\"\",\"\",\"\"",
            "é,ü,\"ß\"",
            "\"a\"\"",
            ",,,,,,,",
        ] {
            assert!(check(text).is_err(), "{text:?}");
        }
        let error = check(&format!("{},gauge,x", "é".repeat(5000)))
            .unwrap_err()
            .to_string();
        assert!(error.len() < 300, "{error}");
    }
}
