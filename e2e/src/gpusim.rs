//! GPU operands on simulated nodes: plays every pod of our GPU controllers that is bound to a node of kwok's, as the kubelet,
//! NVIDIA's images and the hardware would.
//!
//! - Init containers wait for what they wait for on a real node: driver, toolkit, plugin; until then the pod's status shows them
//!   waiting. Then each operand starts in 0.3 to 1 s, the driver in [`Settings::driver_seconds`].
//! - The device plugin makes the node advertise resources, from the configuration file that its pod mounts (time-slicing, MPS,
//!   per-node configuration, MIG). When it goes they are 0. A configuration that the real plugin refuses makes it crash.
//! - GPU feature discovery labels the node, under the field manager `nfd-master`. The labels go 3 s after its pod.
//! - The MIG manager follows its label protocol; a restarted driver pauses the other operands as the driver manager does.
//! - The exporter's pod has an address of 127.0.0.0/8 and answers HTTP on its container port: `/metrics`, `/health`.
//!
//! # Faults
//! Annotations of a Node, or of one pod, which may be changed at any time:
//!
//! | annotation | value | what happens |
//! |---|---|---|
//! | `sim.tessera.dev/<app>` | `fail-pull` | the image cannot be pulled (pods that run already go on) |
//! | | `crash` | the main container ends with 1 again and again |
//! | | `never-ready` | the main container runs and never becomes ready |
//! | | `slow=<seconds>` | it takes that long to start |
//! | | `wait=<init container>` | that init container never ends |
//! | `sim.tessera.dev/missing-gpus` | `2,5` | these cards are gone: from metrics and from allocatable |
//! | `sim.tessera.dev/xid` | `3:79,4:48` | card 3 had XID 79: metrics; a critical one makes the card unhealthy until the plugin restarts |
//! | `sim.tessera.dev/temperature` | `2:97` | card 2 has 97 degrees |
//! | `sim.tessera.dev/recovery-action` | `3:1` | NVML's recovery action of card 3 (1 reset, 2 reboot, ...) |
//! | `sim.tessera.dev/row-remap` | `1:pending` or `1:failure` | row remapping of card 1 |
//! | `sim.tessera.dev/ecc-dbe` | `1:4` | card 1 has had 4 double-bit errors |
//! | `sim.tessera.dev/metrics` | `truncated`, `huge`, `binary`, `empty`, `http-500`, `hang`, `frozen` | what the exporter answers |
//! | `sim.tessera.dev/not-ready` | any | the node's Ready condition becomes Unknown, as when its kubelet has died |
//! | `sim.tessera.dev/mig` | `failed` or `stuck` | how the MIG manager ends |
//!
//! `<app>` is the value of the pod's label `app`: `nvidia-driver-daemonset`, `nvidia-device-plugin-daemonset` and so on. With
//! `<key>=<version>@`, as in `fail-pull@535.104.05`, a fault holds only for images whose tag begins with that version.
//!
//! Annotations that are read when a node is first seen: [`crate::nodes::annotation`].
//!
//! Each node is a task of its own, which sees only its own node and pods: the work per event does not depend on the cluster's size.

mod config;
mod configmaps;
mod dispatch;
mod exporter;
mod faults;
mod gates;
mod hardware;
mod labels;
mod metrics;
mod mig;
mod node;
mod pod;
mod status;

use std::sync::Arc;

use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::hostnode::Net;

/// How operands behave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seconds that a driver pod takes to load its driver (minutes, on a real node).
    pub driver_seconds: f64,
    /// Factor on every other delay.
    pub pace: f64,
    /// Above this number of nodes the statuses on the way to ready are left out, if they would last less than 2 s: four requests
    /// a pod become two, for runs that measure controllers and not the simulator.
    pub detailed_nodes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            driver_seconds: 2.0,
            pace: 1.0,
            detailed_nodes: 24,
        }
    }
}

/// What all nodes share.
struct World {
    client: Client,
    settings: Settings,
    net: Arc<Net>,
    configmaps: configmaps::Cache,
    /// Bounds the requests in flight.
    requests: Semaphore,
    /// Number of nodes known.
    nodes: std::sync::atomic::AtomicUsize,
}

/// Starts playing operands until cancelled.
pub(crate) fn start(client: Client, settings: Settings, net: Arc<Net>, cancel: CancellationToken) {
    let world = Arc::new(World {
        configmaps: configmaps::Cache::new(client.clone()),
        client,
        settings,
        net,
        requests: Semaphore::new(32),
        nodes: std::sync::atomic::AtomicUsize::new(0),
    });
    tokio::spawn(async move {
        tokio::select! {
            () = dispatch::run(world) => {}
            () = cancel.cancelled() => {}
        }
    });
}
