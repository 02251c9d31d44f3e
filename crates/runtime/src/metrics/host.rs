//! `process_*` metrics as Prometheus' client libraries name them, read from `/proc/self`.

use std::fmt::Write as _;

/// Kernel clock ticks a second; fixed at 100 in the user-space interface of Linux (`getconf CLK_TCK`).
const TICKS: f64 = 100.0;

/// The exposition text; empty parts where `/proc` cannot be read.
pub(super) fn process_text() -> String {
    let mut text = String::new();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command name, in parentheses, may hold blanks: count fields after it. utime is field 14, stime 15,
    // starttime 22 (proc_pid_stat(5)); the first after the parenthesis is field 3.
    let fields: Vec<f64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| {
            rest.split_whitespace()
                .map(|field| field.parse().unwrap_or(0.0))
                .collect()
        })
        .unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).copied();
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        gauge(
            &mut text,
            "process_cpu_seconds_total",
            "counter",
            (user + system) / TICKS,
        );
    }
    if let (Some(started), Some(boot)) = (field(22), boot_time()) {
        gauge(
            &mut text,
            "process_start_time_seconds",
            "gauge",
            boot + started / TICKS,
        );
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> Option<f64> {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    if let Some(resident) = kib("VmRSS:") {
        gauge(
            &mut text,
            "process_resident_memory_bytes",
            "gauge",
            resident * 1024.0,
        );
    }
    if let Some(threads) = kib("Threads:") {
        gauge(&mut text, "process_threads", "gauge", threads);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        let open = u32::try_from(files.count()).unwrap_or(u32::MAX);
        gauge(&mut text, "process_open_fds", "gauge", f64::from(open));
    }
    text
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

fn gauge(text: &mut String, name: &str, kind: &str, value: f64) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
}
