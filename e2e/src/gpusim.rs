//! GPU operands on simulated nodes.

use std::sync::Arc;

use kube::Client;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::hostnode::Net;

/// How operands behave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Settings {}

pub(crate) fn start(
    _client: Client,
    _settings: Settings,
    _net: Arc<Net>,
    _cancel: CancellationToken,
) {
}
