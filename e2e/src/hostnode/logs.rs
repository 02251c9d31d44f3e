//! `kubectl logs`: the one part of the kubelet's HTTPS API that people ask for first.
//!
//! The API server comes here for pods of `lab-host`, and of simulated nodes, whose pods have no program that could log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Settings;

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Answers requests until the process ends. Threads, because the few requests of people need no more.
pub(super) fn serve(settings: &Settings) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, settings.kubelet_port)).with_context(|| {
            format!(
                "the node agent cannot listen on port {}",
                settings.kubelet_port
            )
        })?;
    let (tls, logs) = (
        Arc::clone(&settings.kubelet_tls),
        settings.dir.join("log").join("pods"),
    );
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (tls, logs) = (Arc::clone(&tls), logs.clone());
            // A client that goes away in the middle is its own affair.
            std::thread::spawn(move || drop(answer(stream, tls, &logs)));
        }
    });
    Ok(())
}

fn answer(socket: TcpStream, tls: Arc<ServerConfig>, logs: &Path) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut stream = StreamOwned::new(ServerConnection::new(tls)?, socket);
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") && head.len() < 64 * 1024 {
        let length = stream.read(&mut buffer)?;
        anyhow::ensure!(length > 0, "no request");
        head.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
    let head = String::from_utf8_lossy(&head);
    let target = head.split_whitespace().nth(1).unwrap_or_default();
    match Wanted::parse(target, logs) {
        Some(wanted) => wanted.send(&mut stream)?,
        None => write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )?,
    }
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}

/// A request for a log.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    file: PathBuf,
    follow: bool,
    /// Only so many lines of what is there already.
    tail: Option<usize>,
}

impl Wanted {
    /// `/containerLogs/NAMESPACE/POD/CONTAINER?follow=true&tailLines=10`
    fn parse(target: &str, logs: &Path) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts = path.strip_prefix("/containerLogs/")?.split('/');
        let (namespace, pod, container) = (parts.next()?, parts.next()?, parts.next()?);
        let value = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Self {
            file: logs.join(format!("{namespace}_{pod}_{container}.log")),
            follow: value("follow") == Some("true"),
            tail: value("tailLines").and_then(|lines| lines.parse().ok()),
        })
    }

    fn send(&self, stream: &mut Stream) -> anyhow::Result<()> {
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )?;
        match File::open(&self.file) {
            Ok(mut file) => {
                let start = self.start(&mut file)?;
                file.seek(SeekFrom::Start(start))?;
                copy(&mut file, stream)?;
                while self.follow && still_there(stream) {
                    copy(&mut file, stream)?;
                }
            }
            Err(_) => chunk(
                stream,
                b"this container is simulated: no program runs that could log\n",
            )?,
        }
        write!(stream, "0\r\n\r\n")?;
        Ok(())
    }

    /// Where the last lines begin.
    fn start(&self, file: &mut File) -> anyhow::Result<u64> {
        let Some(lines) = self.tail else {
            return Ok(0);
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let last = text
            .split_inclusive(|byte| *byte == b'\n')
            .rev()
            .take(lines);
        let kept: usize = last.map(<[u8]>::len).sum();
        Ok(u64::try_from(text.len() - kept)?)
    }
}

fn copy(file: &mut File, stream: &mut Stream) -> anyhow::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        chunk(stream, buffer.get(..length).unwrap_or_default())?;
    }
}

fn chunk(stream: &mut Stream, bytes: &[u8]) -> anyhow::Result<()> {
    write!(stream, "{:x}\r\n", bytes.len())?;
    stream.write_all(bytes)?;
    stream.write_all(b"\r\n")?;
    stream.flush()?;
    Ok(())
}

/// Waits a moment; false when the client has closed its side (whatever it sends now is that).
fn still_there(stream: &Stream) -> bool {
    let socket = stream.get_ref();
    let waited = socket.set_read_timeout(Some(Duration::from_millis(200)));
    let silent = matches!(socket.peek(&mut [0]), Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
    waited.is_ok() && silent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let wanted = Wanted::parse(
            "/containerLogs/gpu-operator/a-b/controller?follow=true&tailLines=2",
            Path::new("/l"),
        )
        .unwrap();
        assert_eq!(
            wanted,
            Wanted {
                file: PathBuf::from("/l/gpu-operator_a-b_controller.log"),
                follow: true,
                tail: Some(2)
            }
        );
        assert_eq!(Wanted::parse("/healthz", Path::new("/l")), None);
    }

    #[test]
    fn the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        for (tail, start) in [
            (None, 0),
            (Some(0), 14),
            (Some(1), 8),
            (Some(2), 4),
            (Some(3), 0),
            (Some(9), 0),
        ] {
            let wanted = Wanted {
                file: path.clone(),
                follow: false,
                tail,
            };
            assert_eq!(
                wanted.start(&mut File::open(&path).unwrap()).unwrap(),
                start,
                "{tail:?}"
            );
        }
    }
}
