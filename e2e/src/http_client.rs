//! A plain HTTP GET, for metrics and health of things on 127.0.0.0/8.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The body of `http://ADDRESS/PATH`, where `address` is `host:port`.
///
/// # Errors
/// No connection, no HTTP, a status other than 200, or no end within 10 s.
pub async fn http_get(address: &str, path: &str) -> anyhow::Result<String> {
    let answer = tokio::time::timeout(Duration::from_secs(10), fetch(address, path)).await;
    answer.with_context(|| format!("http://{address}{path} did not answer within 10 s"))?
}

async fn fetch(address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("{address} does not listen"))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split_whitespace().nth(1) != Some("200") {
        bail!("http://{address}{path} answered {status}: {body}");
    }
    Ok(body.to_owned())
}
