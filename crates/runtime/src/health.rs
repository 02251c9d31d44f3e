//! `/healthz`, `/readyz` and `/metrics`.
//!
//! Alive means that no part that must turn (election, watches, work loop) has stood still for too long; ready means
//! that all stores are filled and the election works, whether this replica leads or not.

use crate::metrics::Metrics;
use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::{Router, response::IntoResponse};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What parts of the process say about themselves.
#[derive(Clone, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    not_ready: BTreeMap<String, String>,
    beats: BTreeMap<&'static str, (Instant, Duration)>,
}

impl Health {
    /// `part` is not ready, and why.
    pub fn not_ready(&self, part: &str, why: impl Into<String>) {
        self.state
            .lock()
            .not_ready
            .insert(part.to_owned(), why.into());
    }

    /// `part` is ready.
    pub fn ready(&self, part: &str) {
        self.state.lock().not_ready.remove(part);
    }

    /// `part` has just turned and will do so again within `limit`.
    pub fn beat(&self, part: &'static str, now: Instant, limit: Duration) {
        self.state.lock().beats.insert(part, (now, limit));
    }

    /// Why the process is not ready; empty when it is.
    pub fn unready(&self) -> Vec<String> {
        self.state
            .lock()
            .not_ready
            .iter()
            .map(|(part, why)| format!("{part}: {why}"))
            .collect()
    }

    /// Which parts have stood still for longer than they said.
    pub fn stuck(&self, now: Instant) -> Vec<String> {
        let state = self.state.lock();
        let late = state
            .beats
            .iter()
            .filter(|(_, (at, limit))| now.saturating_duration_since(*at) > *limit);
        late.map(|(part, (_, limit))| format!("{part} has not moved for more than {limit:?}"))
            .collect()
    }
}

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {what}; is the port taken? choose another with {flag}")]
pub struct ListenError {
    address: SocketAddr,
    what: &'static str,
    flag: &'static str,
    #[source]
    source: std::io::Error,
}

/// Opens both ports; the returned futures serve until `end`.
pub async fn serve(
    address: IpAddr,
    (metrics_port, health_port): (u16, u16),
    metrics: Arc<Metrics>,
    health: Health,
    end: CancellationToken,
) -> Result<impl Future<Output = ()> + Send + 'static, ListenError> {
    let for_metrics = listen(address, metrics_port, "metrics", "--metrics-port").await?;
    let for_health = listen(address, health_port, "health", "--health-port").await?;
    let metrics_app = Router::new().route(
        "/metrics",
        get(move || std::future::ready(metrics_text(&metrics))),
    );
    let alive = health.clone();
    let health_app = Router::new()
        .route(
            "/healthz",
            get(move || std::future::ready(answer(&alive.stuck(crate::clock::now())))),
        )
        .route(
            "/readyz",
            get(move || std::future::ready(answer(&health.unready()))),
        );
    let ended = end.clone();
    Ok(async move {
        let one =
            axum::serve(for_metrics, metrics_app).with_graceful_shutdown(end.cancelled_owned());
        let two =
            axum::serve(for_health, health_app).with_graceful_shutdown(ended.cancelled_owned());
        let (one, two) = tokio::join!(one.into_future(), two.into_future());
        for error in [one.err(), two.err()].into_iter().flatten() {
            tracing::warn!(%error, "a port stopped serving");
        }
    })
}

async fn listen(
    address: IpAddr,
    port: u16,
    what: &'static str,
    flag: &'static str,
) -> Result<tokio::net::TcpListener, ListenError> {
    let address = SocketAddr::new(address, port);
    tokio::net::TcpListener::bind(address)
        .await
        .map_err(|source| ListenError {
            address,
            what,
            flag,
            source,
        })
}

fn answer(problems: &[String]) -> impl IntoResponse + use<> {
    if problems.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{}\n", problems.join("\n")),
        )
    }
}

fn metrics_text(metrics: &Metrics) -> impl IntoResponse + use<> {
    match metrics.encode() {
        Ok(text) => (
            StatusCode::OK,
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            text,
        ),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_stands_still_is_named() {
        let health = Health::default();
        let start = Instant::now();
        health.beat("election", start, Duration::from_secs(30));
        assert!(health.stuck(start + Duration::from_secs(30)).is_empty());
        let late = health.stuck(start + Duration::from_secs(31));
        assert_eq!(late, ["election has not moved for more than 30s"]);
    }

    #[test]
    fn ready_when_no_part_objects() {
        let health = Health::default();
        health.not_ready("store Node", "first list is running");
        assert_eq!(health.unready(), ["store Node: first list is running"]);
        health.ready("store Node");
        assert!(health.unready().is_empty());
    }
}
