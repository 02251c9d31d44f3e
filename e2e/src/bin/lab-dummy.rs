//! A small program for the lab's own tests: an "image" that serves HTTP, sleeps, or ends, as its arguments say.
//!
//! `--bind ADDRESS:PORT` serves 200 on every path, its arguments and environment as the body; `--exit CODE` ends at once;
//! `--exit-after SECONDS` ends with 1. SIGTERM ends it with 0.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        args.iter()
            .find_map(|arg| arg.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let _ = writeln!(std::io::stdout(), "lab-dummy {args:?}");
    if let Some(code) = value("--exit").and_then(|code| code.parse::<u8>().ok()) {
        return ExitCode::from(code);
    }
    if let Some(address) = value("--bind") {
        std::thread::spawn(move || serve(&address));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let Ok(mut term) =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        else {
            return ExitCode::FAILURE;
        };
        let life = value("--exit-after")
            .and_then(|text| text.parse().ok())
            .map_or(Duration::MAX, Duration::from_secs);
        tokio::select! {
            _ = term.recv() => ExitCode::SUCCESS,
            () = tokio::time::sleep(life) => ExitCode::FAILURE,
        }
    })
}

fn serve(address: &str) {
    let Ok(listener) = TcpListener::bind(address) else {
        return;
    };
    let mut body = String::new();
    for arg in std::env::args().skip(1) {
        let _ = writeln!(body, "arg {arg}");
    }
    for (name, text) in std::env::vars() {
        let _ = writeln!(body, "env {name}={text}");
    }
    for mut stream in listener.incoming().flatten() {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
}
