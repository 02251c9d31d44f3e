//! The exporter's HTTP server on the pod's own address, healthy or not as told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::faults::Answer;
use super::metrics::{self, Facts};
use super::pod::Sim;

/// Size of the answer `huge`.
const HUGE: usize = 8 << 20;

/// A running server; it ends when this is dropped.
pub(super) struct Exporter {
    facts: Arc<Mutex<Facts>>,
    task: AbortHandle,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Exporter {
    /// Listens on the pod's address and its container port; `None` when that cannot be had.
    pub(super) fn start(sim: &Sim, facts: Facts) -> Option<Self> {
        let ports = sim
            .containers()
            .iter()
            .flat_map(|container| container.ports.iter().flatten());
        let port = ports.map(|port| port.container_port).next().unwrap_or(9400);
        let address = SocketAddr::new(sim.ip.parse().ok()?, u16::try_from(port).ok()?);
        let listener = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%address, %error, "the exporter cannot listen");
                return None;
            }
        };
        let facts = Arc::new(Mutex::new(facts));
        let task = tokio::spawn(serve(listener, Arc::clone(&facts))).abort_handle();
        Some(Self { facts, task })
    }

    /// What it reports from now on.
    pub(super) fn update(&self, facts: Facts) {
        *self.facts.lock() = facts;
    }
}

async fn serve(listener: TcpListener, facts: Arc<Mutex<Facts>>) {
    let started = Instant::now();
    // The last text before the answer froze.
    let frozen = Arc::new(Mutex::new(None));
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let (facts, frozen) = (facts.lock().clone(), Arc::clone(&frozen));
            tokio::spawn(async move {
                // A client that goes away in the middle is its own affair.
                let _ = tokio::time::timeout(
                    Duration::from_secs(60),
                    answer(stream, facts, frozen, started),
                )
                .await;
            });
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    facts: Facts,
    frozen: Arc<Mutex<Option<String>>>,
    started: Instant,
) -> std::io::Result<()> {
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await?;
    request.truncate(length);
    let line = String::from_utf8_lossy(&request);
    let path = line.split_whitespace().nth(1).unwrap_or("/");
    let (code, body, announced) = match path.split('?').next().unwrap_or("/") {
        "/health" => ("200 OK", b"OK\n".to_vec(), None),
        "/metrics" => metrics_answer(&facts, &frozen, started).await,
        _ => ("404 Not Found", b"not found\n".to_vec(), None),
    };
    let length = announced.unwrap_or(body.len());
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

/// Status, body, and the announced length where that is another.
async fn metrics_answer(
    facts: &Facts,
    frozen: &Mutex<Option<String>>,
    started: Instant,
) -> (&'static str, Vec<u8>, Option<usize>) {
    let fresh = || metrics::text(facts, started.elapsed().as_secs_f64());
    if facts.cards.answer != Answer::Frozen {
        *frozen.lock() = None;
    }
    match facts.cards.answer {
        Answer::Healthy => ("200 OK", fresh().into_bytes(), None),
        Answer::Frozen => (
            "200 OK",
            frozen.lock().get_or_insert_with(fresh).clone().into_bytes(),
            None,
        ),
        Answer::Truncated => {
            let mut body = fresh().into_bytes();
            let whole = body.len();
            body.truncate(whole / 2 + 7);
            ("200 OK", body, Some(whole))
        }
        Answer::Huge => {
            let mut body = fresh();
            let line = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-x\",padding=\"0123456789\"} 40\n";
            body.extend(std::iter::repeat_n(line, HUGE / line.len()));
            ("200 OK", body.into_bytes(), None)
        }
        Answer::Binary => (
            "200 OK",
            (0..=255_u8).cycle().take(64 * 1024).collect(),
            None,
        ),
        Answer::Empty => ("200 OK", Vec::new(), None),
        Answer::Error500 => (
            "500 Internal Server Error",
            b"failed to collect metrics\n".to_vec(),
            None,
        ),
        Answer::Hang => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            ("200 OK", Vec::new(), None)
        }
    }
}
