//! Startup, liveness and readiness probes.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::status::Board;

/// How long after the start of a container its first probe comes at the earliest: a process needs a moment to listen.
const FIRST: Duration = Duration::from_millis(200);

/// Probes a running container; returns, with the reason, when the container must be restarted.
pub(super) async fn run(board: &Board, container: &Container, ip: &str) -> String {
    if let Some(probe) = &container.startup_probe {
        let mut failures = 0;
        wait(FIRST.max(seconds(probe.initial_delay_seconds, 0))).await;
        while let Err(reason) = once(probe, container, ip).await {
            failures += 1;
            if failures >= probe.failure_threshold.unwrap_or(3) {
                return format!("Startup probe failed: {reason}");
            }
            wait(seconds(probe.period_seconds, 10)).await;
        }
    }
    board.update(&container.name, |status| {
        status.started = true;
        status.ready = container.readiness_probe.is_none();
    });
    tokio::select! {
        () = readiness(board, container, ip) => String::new(),
        reason = liveness(container, ip) => reason,
    }
}

async fn readiness(board: &Board, container: &Container, ip: &str) {
    let Some(probe) = &container.readiness_probe else {
        return std::future::pending().await;
    };
    let (mut successes, mut failures) = (0, 0);
    wait(FIRST.max(seconds(probe.initial_delay_seconds, 0))).await;
    loop {
        if once(probe, container, ip).await.is_ok() {
            (successes, failures) = (successes + 1, 0);
            if successes >= probe.success_threshold.unwrap_or(1) {
                board.update(&container.name, |status| status.ready = true);
            }
        } else {
            (successes, failures) = (0, failures + 1);
            if failures >= probe.failure_threshold.unwrap_or(3) {
                board.update(&container.name, |status| status.ready = false);
            }
        }
        wait(seconds(probe.period_seconds, 10)).await;
    }
}

async fn liveness(container: &Container, ip: &str) -> String {
    let Some(probe) = &container.liveness_probe else {
        return std::future::pending().await;
    };
    let mut failures = 0;
    wait(FIRST.max(seconds(probe.initial_delay_seconds, 0))).await;
    loop {
        match once(probe, container, ip).await {
            Ok(()) => failures = 0,
            Err(reason) => {
                failures += 1;
                if failures >= probe.failure_threshold.unwrap_or(3) {
                    return format!("Liveness probe failed: {reason}");
                }
            }
        }
        wait(seconds(probe.period_seconds, 10)).await;
    }
}

async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(
        value
            .and_then(|value| u64::try_from(value).ok())
            .unwrap_or(default),
    )
}

/// One probe, within its time limit.
async fn once(probe: &Probe, container: &Container, ip: &str) -> Result<(), String> {
    let limit = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
    match tokio::time::timeout(limit, attempt(probe, container, ip)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

async fn attempt(probe: &Probe, container: &Container, ip: &str) -> Result<(), String> {
    if let Some(action) = &probe.http_get {
        let host = action
            .host
            .as_deref()
            .filter(|host| !host.is_empty())
            .unwrap_or(ip);
        let port = port(&action.port, container)?;
        if action.scheme.as_deref() == Some("HTTPS") {
            return connect(host, port).await.map(drop);
        }
        return http_get(action, host, port).await;
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action
            .host
            .as_deref()
            .filter(|host| !host.is_empty())
            .unwrap_or(ip);
        return connect(host, port(&action.port, container)?)
            .await
            .map(drop);
    }
    Err("this kind of probe is not played by the lab".to_owned())
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port))
        .await
        .map_err(|error| format!("dial tcp {host}:{port}: {error}"))
}

async fn http_get(action: &HTTPGetAction, host: &str, port: u16) -> Result<(), String> {
    let mut stream = connect(host, port).await?;
    let path = action
        .path
        .as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or("/");
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: kube-probe/1.34\r\nAccept: */*\r\nConnection: close\r\n"
    );
    for header in action.http_headers.iter().flatten() {
        let _ = write!(request, "{}: {}\r\n", header.name, header.value);
    }
    request += "\r\n";
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // 10 kB, as the kubelet reads; the status line is at the beginning.
    stream
        .take(10_240)
        .read_to_end(&mut answer)
        .await
        .map_err(|error| error.to_string())?;
    match status_code(&answer) {
        Some(200..=399) => Ok(()),
        Some(code) => Err(format!("HTTP probe failed with statuscode: {code}")),
        None => Err("the answer is not HTTP".to_owned()),
    }
}

fn status_code(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next()?.strip_prefix("HTTP/1.")?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_ref() == Some(name));
            named
                .map(|port| port.container_port)
                .or_else(|| name.parse().ok())
        }
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .ok_or_else(|| format!("the container has no port {port:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines() {
        assert_eq!(status_code(b"HTTP/1.1 200 OK\r\n\r\nok"), Some(200));
        assert_eq!(
            status_code(b"HTTP/1.0 503 Service Unavailable\r\n"),
            Some(503)
        );
        assert_eq!(status_code(b"SSH-2.0-x\r\n"), None);
        assert_eq!(status_code(b""), None);
    }
}
