//! `cargo xtask fuzz`: looks for inputs that break what reads strangers' texts (`fuzz/`), guided by the branches that they reach.

mod report;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use tessera_e2e::paths;
use tessera_fuzz::{RESIDENT, TARGET, TARGETS, TIMEOUT, Target};

use self::report::Report;

/// How long each target is tried in a test.
pub(crate) const SECONDS: u32 = 60;

/// What the compiler puts into every function, dependencies' too: a counter a branch, and what is compared, so that a constant in
/// the code is soon in the inputs. Only a sanitizer would need a nightly compiler, and code without `unsafe` has no use for one.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Options of `fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each target is tried.
    #[arg(long, default_value_t = SECONDS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Feed a target this one input, as a run that failed says.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// What is fed; everything when nothing is named.
    #[arg(value_name = "TARGET", value_parser = target)]
    targets: Vec<&'static Target>,
}

fn target(name: &str) -> Result<&'static Target, String> {
    Target::of(name).ok_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        format!("is none of {}", names.join(", "))
    })
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let passed = match (&args.input, args.targets.as_slice()) {
        (None, []) => all(&TARGETS.iter().collect::<Vec<_>>(), args.seconds)?,
        (None, targets) => all(targets, args.seconds)?,
        (Some(input), [target]) => once(target, input)?,
        (Some(_), _) => bail!("--input needs the one target that it is for"),
    };
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tries targets, as many at a time as there are processors, and prints a line for each; whether all hold.
pub(crate) fn all(targets: &[&'static Target], seconds: u32) -> anyhow::Result<bool> {
    let program = build()?;
    let at_once = std::thread::available_parallelism().map_or(1, NonZero::get);
    let waiting = Mutex::new(targets.iter());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(targets.len()) {
            scope.spawn(|| {
                loop {
                    let Some(target) = waiting.lock().next() else {
                        break;
                    };
                    let result = one(&program, target, seconds).map(|report| {
                        println!("{}", report.line(target.name));
                        report.failure.is_none()
                    });
                    results.lock().push(result);
                }
            });
        }
    });
    let passed: anyhow::Result<Vec<bool>> = results.into_inner().into_iter().collect();
    Ok(passed?.into_iter().all(|passed| passed))
}

/// Builds the fuzzer's program, in a target directory of its own: the flags would make everything else be built anew.
fn build() -> anyhow::Result<PathBuf> {
    let host = host()?;
    let target_dir = directory();
    println!("building the fuzzer (some minutes at first) ...");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "tessera-fuzz"])
        .args(["--bin", "fuzzer", "--features", "libfuzzer"])
        .args(["--profile", "fuzz", "--target", &host])
        .arg("--target-dir")
        .arg(&target_dir)
        .current_dir(paths::root())
        // With `--target` they are not for build scripts, which have no fuzzer to count for.
        .env("RUSTFLAGS", COVERAGE.join(" "))
        .status()
        .context("cargo cannot be run")?;
    ensure!(
        status.success(),
        "the fuzzer cannot be built; beside Rust it needs a C++ compiler"
    );
    Ok(target_dir.join(host).join("fuzz/fuzzer"))
}

fn host() -> anyhow::Result<String> {
    let rustc = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("rustc cannot be run")?;
    let text = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .with_context(|| format!("`rustc -vV` names no host: {text}"))?
        .to_owned())
}

fn directory() -> PathBuf {
    paths::target().join("fuzz")
}

/// Tries one target with what the fuzzer makes of the inputs that are kept. What reaches new branches is where the next run begins.
fn one(program: &Path, target: &Target, seconds: u32) -> anyhow::Result<Report> {
    let room = directory().join("run").join(target.name);
    let (found, failed) = (room.join("found"), directory().join("failed"));
    for directory in [&found, &failed] {
        fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
    }
    let words = room.join("words");
    fs::write(&words, dictionary(target)?)
        .with_context(|| format!("{} cannot be written", words.display()))?;
    let mut command = command(program, target);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={}", target.longest))
        .arg(format!("-dict={}", words.display()))
        .arg(format!(
            "-artifact_prefix={}/{}-",
            failed.display(),
            target.name
        ))
        .arg("-print_final_stats=1")
        .args([&found, &target.kept()]);
    logged(&mut command, &room.join("log"))
}

/// Runs the fuzzer to its end, and reads what it said.
fn logged(command: &mut Command, log: &Path) -> anyhow::Result<Report> {
    let file = File::create(log).with_context(|| format!("{} cannot be made", log.display()))?;
    let status = command
        // The message and the place of a panic are enough in a log; `--input` shows the way there.
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(file)
        .status()
        .context("the fuzzer cannot be run")?;
    let text = fs::read(log).with_context(|| format!("{} cannot be read", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    Ok(Report::read(&text, status.success(), log))
}

/// Feeds one input, and shows all that is said.
fn once(target: &Target, input: &Path) -> anyhow::Result<bool> {
    ensure!(input.is_file(), "{} is no file", input.display());
    let mut command = command(&build()?, target);
    command.arg(input).env("RUST_BACKTRACE", "1");
    Ok(command
        .status()
        .context("the fuzzer cannot be run")?
        .success())
}

/// The fuzzer within its limits, which hold for one input as for many.
fn command(program: &Path, target: &Target) -> Command {
    let mut command = Command::new(program);
    command
        .env(TARGET, target.name)
        .arg(format!("-rss_limit_mb={RESIDENT}"))
        .arg(format!("-timeout={TIMEOUT}"));
    command
}

/// The words of the inputs that are kept, in libFuzzer's form: a new input is more often one of words than of letters.
fn dictionary(target: &Target) -> anyhow::Result<String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let mut words = BTreeSet::new();
    let kept = target.kept();
    let entries =
        fs::read_dir(&kept).with_context(|| format!("{} cannot be read", kept.display()))?;
    for entry in entries {
        let path = entry?.path();
        let bytes =
            fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let known = text.split(|c| !is_letter(c));
        words.extend(
            known
                .filter(|word| (3..=40).contains(&word.len()))
                .map(str::to_owned),
        );
    }
    Ok(words.iter().map(|word| format!("\"{word}\"\n")).collect())
}
