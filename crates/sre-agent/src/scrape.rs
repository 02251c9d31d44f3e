//! One HTTP GET an exporter, bounded in time and bytes, read as it arrives. A slow or broken exporter costs its own slot and
//! nothing else.

use crate::dcgm::Sample;
use crate::exposition::Reader;
use crate::snapshot::Telemetry;
use futures::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// Largest answer that is read, bytes. 72 metrics of 16 GPUs with long labels are about 1 MiB.
pub const MAX_BODY: usize = 8 * 1024 * 1024;

/// Where an exporter listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Address of its pod.
    pub ip: IpAddr,
    /// Port of `/metrics`.
    pub port: u16,
}

/// Limits of scraping.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For one target, from connecting to the last byte.
    pub time: Duration,
    /// Targets at the same time.
    pub concurrency: usize,
}

/// Asks all targets and says for each node what came.
pub async fn all(targets: BTreeMap<String, Target>, limits: Limits) -> BTreeMap<String, Telemetry> {
    let asked = futures::stream::iter(targets)
        .map(|(node, target)| async move { (node, one(target, limits.time).await) });
    asked
        .buffer_unordered(limits.concurrency.max(1))
        .collect()
        .await
}

/// Asks one target.
pub async fn one(target: Target, limit: Duration) -> Telemetry {
    match tokio::time::timeout(limit, get(target)).await {
        Ok(Ok(sample)) => Telemetry::Good(sample),
        Ok(Err(Failure::Unreachable(cause))) => Telemetry::Unreachable(cause.to_owned()),
        Ok(Err(Failure::Malformed(cause))) => Telemetry::Malformed(cause),
        Err(_) => Telemetry::Unreachable(format!(
            "the exporter did not answer within {} s",
            limit.as_secs()
        )),
    }
}

/// The causes have no addresses and no numbers that change, so that an equal cause is an equal text.
enum Failure {
    Unreachable(&'static str),
    Malformed(String),
}

async fn get(target: Target) -> Result<Sample, Failure> {
    let stream = TcpStream::connect(SocketAddr::new(target.ip, target.port)).await;
    let stream = stream.map_err(|error| {
        let refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
        Failure::Unreachable(if refused {
            "the exporter refuses connections"
        } else {
            "the exporter cannot be reached"
        })
    })?;
    let broken = |_| Failure::Unreachable("the exporter closed the connection without an answer");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let host = SocketAddr::new(target.ip, target.port).to_string();
    let request = Request::get("/metrics")
        .header("host", host)
        .header("accept", "text/plain;version=0.0.4")
        .header("connection", "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| Failure::Unreachable("no request can be made for this address"))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| {
            if error.is_parse() {
                Failure::Malformed("the exporter does not speak HTTP".to_owned())
            } else {
                Failure::Unreachable("the exporter closed the connection without an answer")
            }
        })?;
        read(response).await
    };
    // The connection must be driven while the answer is awaited; it may also end a moment before the answer is read.
    tokio::pin!(answer);
    tokio::select! {
        biased;
        sample = &mut answer => sample,
        _ = connection => answer.await,
    }
}

async fn read(response: Response<Incoming>) -> Result<Sample, Failure> {
    if !response.status().is_success() {
        return Err(Failure::Malformed(format!(
            "the exporter answered HTTP {}",
            response.status().as_u16()
        )));
    }
    let mut body = response.into_body();
    let (mut reader, mut sample, mut size) = (Reader::default(), Sample::default(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Malformed("the answer is cut off".to_owned()))?;
        let Some(chunk) = frame.data_ref() else {
            continue;
        };
        size = size.saturating_add(chunk.len());
        if size > MAX_BODY {
            return Err(Failure::Malformed(
                "the answer is larger than 8 MiB".to_owned(),
            ));
        }
        reader
            .feed(chunk, &mut |row| sample.take(row))
            .map_err(|error| Failure::Malformed(error.to_string()))?;
    }
    reader
        .finish()
        .map_err(|error| Failure::Malformed(error.to_string()))?;
    Ok(sample)
}

#[cfg(test)]
mod tests;
