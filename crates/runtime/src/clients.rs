//! API clients with time limits and without the library's own retries: the work loop and the elector decide about
//! retries, because a hidden one could write after the lease was lost.

use crate::args::RuntimeArgs;
use crate::metrics::Metrics;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Both clients of a process.
#[derive(Clone)]
pub struct Clients {
    /// For everything but the lease.
    pub main: Client,
    /// For the lease only: its requests never queue behind others on one connection.
    pub lease: Client,
}

/// No client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither KUBECONFIG nor a pod's ServiceAccount was usable.
    #[error(
        "no cluster to talk to: set KUBECONFIG, or run in a pod with a mounted ServiceAccount token"
    )]
    Config(#[source] kube::config::InferConfigError),
    /// The configuration was read but no client could be built from it.
    #[error("the client configuration cannot be used")]
    Build(#[source] kube::Error),
}

/// Reads the configuration (KUBECONFIG, else in-cluster) and builds both clients.
pub async fn connect(args: &RuntimeArgs, metrics: &Arc<Metrics>) -> Result<Clients, ClientError> {
    let config = Config::infer().await.map_err(ClientError::Config)?;
    Ok(Clients {
        main: build(config.clone(), args.request_timeout, metrics)?,
        lease: build(config, args.request_timeout, metrics)?,
    })
}

fn build(
    mut config: Config,
    limit: Duration,
    metrics: &Arc<Metrics>,
) -> Result<Client, ClientError> {
    config.default_retry = false;
    config.connect_timeout = Some(limit);
    // Watches are ended by the server after 290 s and guarded by the watcher, so only single requests get a limit:
    // `within` sets it where they are sent.
    config.read_timeout = None;
    config.write_timeout = Some(limit);
    let metrics = metrics.clone();
    let layer = tower::layer::layer_fn(move |inner| Counted {
        inner,
        metrics: metrics.clone(),
    });
    Ok(ClientBuilder::try_from(config)
        .map_err(ClientError::Build)?
        .with_layer(&layer)
        .build())
}

/// A request did not end in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no answer from the API server within {0:?}")]
pub struct TimedOut(pub Duration);

/// Runs one request with a time limit; running out of it is a service error like a lost connection.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service(Box::new(TimedOut(limit)))),
    }
}

/// Counts requests as client-go does (`rest_client_requests_total`).
#[derive(Clone)]
pub struct Counted<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B> tower::Service<http::Request<kube::client::Body>> for Counted<S>
where
    S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = futures::future::BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let metrics = self.metrics.clone();
        let method = request.method().as_str().to_owned();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer
                .as_ref()
                .map_or(0, |response| response.status().as_u16());
            metrics.request(&method, code);
            answer
        })
    }
}
