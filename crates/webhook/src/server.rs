//! HTTPS: an accept loop of its own, so that a slow client holds up nobody, and an end that no client sees.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderValue, StatusCode, header};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::crypto::ring;
use tessera_runtime::clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{Question, Verdict, answer};
use crate::configuration::{MUTATE_PODS, VALIDATE};
use crate::context::Context;
use crate::facts::Stores;
use crate::rules;

/// Largest body: the API server takes objects of 1.5 MiB, and sends the old and the new one.
const BODY: usize = 3 * 1024 * 1024;
/// Longest time for one answer, its body's arrival included; the API server waits 5 s.
const ANSWER: Duration = Duration::from_secs(3);
/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a connection may be silent. Longer than the 90 s after which Go's client closes an idle one, or a request could meet our end.
const IDLE: Duration = Duration::from_secs(120);
/// Most connections at a time; an API server keeps about 25 at most.
const CONNECTIONS: usize = 500;

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The port is taken.
    #[error(
        "cannot listen on {address} for admission; is the port taken? choose another with --webhook-port"
    )]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// A listening server.
pub(crate) struct Server {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    context: Arc<Context>,
    drain: Duration,
    drained: CancellationToken,
}

impl Server {
    pub(crate) async fn bind(context: &Arc<Context>, address: IpAddr) -> Result<Self, ServerError> {
        let address = SocketAddr::new(address, context.settings.port);
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| ServerError::Listen { address, source })?;
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(context.served.clone());
        // The API server speaks HTTP/1.1 with webhooks, so that their replicas share the load.
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            context: Arc::clone(context),
            drain: context.settings.drain,
            drained: CancellationToken::new(),
        })
    }

    /// Completes when the server has ended after the order to stop.
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + Send + 'static {
        self.drained.clone().cancelled_owned()
    }

    /// Serves until `stop`, then for the drain time takes new connections still (somebody may not know yet that this replica goes)
    /// but asks each client to close after its answer; then closes what is idle and lets the rest finish.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let state = Arc::new(Shared {
            context: self.context,
            stopping: stop.clone(),
        });
        let router = Router::new()
            .route(VALIDATE, post(validate))
            .route(MUTATE_PODS, post(mutate_pods))
            .with_state(state);
        let closing = CancellationToken::new();
        let connections = TaskTracker::new();
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let drain = self.drain;
        let end = async move {
            stop.cancelled().await;
            tokio::time::sleep(drain).await;
        };
        tokio::pin!(end);
        loop {
            let accepted = tokio::select! {
                () = &mut end => break,
                accepted = accept(&self.listener, &slots) => accepted,
            };
            if let Some((stream, slot)) = accepted {
                let connection = Connection {
                    acceptor: self.acceptor.clone(),
                    router: router.clone(),
                    closing: closing.clone(),
                    _slot: slot,
                };
                connections.spawn(connection.serve(stream));
            }
        }
        drop(self.listener);
        closing.cancel();
        connections.close();
        let finished = tokio::time::timeout(ANSWER + Duration::from_secs(1), connections.wait());
        if finished.await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        self.drained.cancel();
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, slot)),
        Err(error) => {
            // The client has gone again, or there are no file descriptors: a short wait keeps this from spinning.
            tracing::debug!(%error, "a connection was not accepted");
            tokio::time::sleep(Duration::from_millis(20)).await;
            None
        }
    }
}

struct Connection {
    acceptor: TlsAcceptor,
    router: Router,
    closing: CancellationToken,
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are one small packet.
        let _ = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await;
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return;
            }
            Err(_) => return,
        };
        let service = TowerToHyperService::new(self.router);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(64 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

struct Shared {
    context: Arc<Context>,
    stopping: CancellationToken,
}

async fn validate(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    answered(&shared, VALIDATE, rules::verdict, body).await
}

async fn mutate_pods(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    answered(&shared, MUTATE_PODS, rules::pod, body).await
}

/// From a question to what is said.
type Rule = fn(&Question, &Stores) -> Verdict;

async fn answered(shared: &Shared, path: &'static str, rule: Rule, body: Body) -> Response {
    let start = clock::now();
    let metrics = &shared.context.metrics;
    metrics.begins(path);
    let answered = tokio::time::timeout(ANSWER, judge(&shared.context, path, rule, body)).await;
    let mut response = answered.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", ANSWER.as_secs());
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    });
    metrics.ended(path, response.status().as_u16(), start.elapsed());
    if shared.stopping.is_cancelled() {
        // The client opens its next connection to another replica.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

async fn judge(context: &Context, path: &'static str, rule: Rule, body: Body) -> Response {
    let Ok(body) = axum::body::to_bytes(body, BODY).await else {
        let text = format!("the body did not arrive, or is larger than {BODY} bytes");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    };
    let question = match Question::parse(&body) {
        Ok(question) => question,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let verdict = rule(&question, &context.stores);
    context.metrics.said(path, &verdict);
    if !verdict.refusals.is_empty() {
        tracing::info!(kind = %question.kind, operation = ?question.operation, refusals = verdict.refusals.len(), "refused");
    }
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, answer(&question.uid, &verdict).to_string()).into_response()
}
