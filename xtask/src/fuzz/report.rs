//! What libFuzzer's log says.

use std::path::{Path, PathBuf};

/// Most of a panic's message, in characters: inputs stand in them.
const LONGEST: usize = 300;

/// How a target did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// How many inputs were tried.
    runs: u64,
    /// How many branches some input reached.
    reached: u64,
    /// How many inputs reached new ones.
    new: u64,
    /// The most memory of the process, MiB.
    peak: u64,
    /// All that was said.
    log: PathBuf,
    /// What broke.
    pub(crate) failure: Option<Failure>,
}

/// What broke.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// In a line.
    what: String,
    /// The input that does it, if the fuzzer lived to write it.
    input: Option<String>,
}

impl Report {
    /// Reads the log of a run.
    pub(crate) fn read(text: &str, succeeded: bool, log: &Path) -> Self {
        let number = |text: &str| -> u64 {
            let digits = text.trim().split(|c: char| !c.is_ascii_digit()).next();
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let last = |name: &str| {
            let mut lines = text.lines().rev();
            let found = lines.find_map(|line| line.split_once(name));
            found.map_or(0, |(_, value)| number(value))
        };
        let mut report = Self {
            runs: last("stat::number_of_executed_units:"),
            reached: last(" cov: "),
            new: last("stat::new_units_added:"),
            peak: last("stat::peak_rss_mb:"),
            log: log.to_path_buf(),
            failure: None,
        };
        if !succeeded {
            report.failure = Some(Failure {
                what: what(text),
                input: input(text),
            });
        } else if report.runs == 0 || report.reached == 0 {
            report.failure = Some(Failure {
                what: "no input reached a counter: the program was built without them".to_owned(),
                input: None,
            });
        }
        report
    }

    /// For the person at the terminal: a line, and after a failure what to do.
    pub(crate) fn line(&self, target: &str) -> String {
        let result = if self.failure.is_none() {
            "holds"
        } else {
            "FAILED"
        };
        let Self {
            runs,
            reached,
            new,
            peak,
            log,
            failure,
        } = self;
        let mut line = format!(
            "{target:<17} {result:<7} {runs:>8} inputs tried, {reached:>6} branches reached, {new:>5} new inputs kept, {peak:>4} MiB at most"
        );
        if let Some(failure) = failure {
            line.push_str(&format!("\n  what   {}", failure.what));
            if let Some(input) = &failure.input {
                line.push_str(&format!(
                    "\n  input  {input}\n  again  cargo xtask fuzz {target} --input {input}\n  then   correct it, and keep the input as \
                     fuzz/corpus/{target}/<what it is>, which an ordinary test feeds from then on"
                ));
            }
            line.push_str(&format!("\n  log    {}", log.display()));
        }
        line
    }
}

/// Where the input was written that did it.
fn input(text: &str) -> Option<String> {
    let mut lines = text.lines().rev();
    lines.find_map(|line| Some(line.split_once("Test unit written to ")?.1.to_owned()))
}

/// The cause in a line: a panic's place and message, else what libFuzzer or the allocator says.
fn what(text: &str) -> String {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((_, place)) = line.split_once("panicked at ") {
            let message = lines.next().unwrap_or_default();
            let message: String = message.chars().take(LONGEST).collect();
            return format!("{message} ({})", place.trim_end_matches(':'));
        }
        if line.starts_with("memory allocation of ") {
            return line.to_owned();
        }
        if let Some((_, error)) = line.split_once("ERROR: libFuzzer: ") {
            return error.to_owned();
        }
    }
    "the fuzzer ended without a word, as it does when the stack is full".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "INFO: Loaded 1 modules   (267787 inline 8-bit counters): 267787 [0x1, 0x2),\n\
        #55\tINITED cov: 25550 ft: 41081 corp: 54/40Kb exec/s: 0 rss: 54Mb\n\
        #94102\tREDUCE cov: 26001 ft: 42000 corp: 60/41Kb lim: 64 exec/s: 8554 rss: 66Mb L: 12/64 MS: 1\n";
    const END: &str = "stat::number_of_executed_units: 94102\nstat::average_exec_per_sec:     8554\n\
        stat::new_units_added:          1913\nstat::slowest_unit_time_sec:    0\nstat::peak_rss_mb:              66\n";

    fn read(middle: &str, succeeded: bool) -> Report {
        let text = format!("{START}{middle}{END}");
        Report::read(&text, succeeded, Path::new("log"))
    }

    #[test]
    fn numbers() {
        let report = read("Done 94102 runs in 11 second(s)\n", true);
        let want = Report {
            runs: 94_102,
            reached: 26_001,
            new: 1_913,
            peak: 66,
            log: PathBuf::from("log"),
            failure: None,
        };
        assert_eq!(report, want);
    }

    #[test]
    fn failures() {
        let panic = "\nthread '<unnamed>' (7) panicked at crates/api/src/x.rs:1:2:\nno such thing: \"a\"\n==7== ERROR: libFuzzer: deadly signal\n\
            artifact_prefix='f/'; Test unit written to f/x-crash-1\n";
        for (middle, what, input) in [
            (
                panic,
                "no such thing: \"a\" (crates/api/src/x.rs:1:2)",
                Some("f/x-crash-1"),
            ),
            (
                "==7== ERROR: libFuzzer: timeout after 5 seconds\nartifact_prefix='f/'; Test unit written to f/timeout-2\n",
                "timeout after 5 seconds",
                Some("f/timeout-2"),
            ),
            (
                "memory allocation of 9 bytes failed\n==7== ERROR: libFuzzer: deadly signal\n",
                "memory allocation of 9 bytes failed",
                None,
            ),
            (
                "",
                "the fuzzer ended without a word, as it does when the stack is full",
                None,
            ),
        ] {
            let failure = read(middle, false).failure.unwrap();
            assert_eq!(
                (failure.what.as_str(), failure.input.as_deref()),
                (what, input)
            );
        }
    }

    #[test]
    fn a_blind_run_is_a_failure() {
        let text = format!("#2\tINITED exec/s: 0 rss: 40Mb\n{END}");
        let report = Report::read(&text, true, Path::new("log"));
        let failure = report.failure.unwrap();
        assert!(failure.what.contains("without them"), "{failure:?}");
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let middle = "memory allocation of 9 bytes failed\nartifact_prefix='f/'; Test unit written to f/t-crash\n";
        let line = read(middle, false).line("t");
        for part in [
            "FAILED",
            "cargo xtask fuzz t --input f/t-crash",
            "fuzz/corpus/t/",
            "log    log",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
