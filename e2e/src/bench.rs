//! The budgets of the design, measured on one lab: what `cargo xtask bench` prints and what the scale test asserts.
//!
//! The order matters: every measurement begins when the controllers have come to rest after the one before.

mod steps;
mod table;

use std::time::Duration;

pub use self::table::{Row, print};
use crate::Lab;
use crate::audit::{Audit, Class, Request};
use crate::lab::Usage;
use crate::scenario::{CONTROLLERS, MINUTE, SECOND, count, fixture, input, leader, lines, quiet};

/// How often the controllers look at everything without a reason in a bench: a converged minute holds two of these passes.
const RESYNC: &str = "--set=reconcileInterval=25s";

/// Which measurements are taken beside those that every size has.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// GPU nodes.
    pub nodes: usize,
    /// Also a minute in which no pod of three operands can start.
    pub broken_minute: bool,
    /// Also a change of the driver's version on every node.
    pub upgrade: bool,
    /// Also how long the webhook's answers take.
    pub admission: bool,
}

/// One measured lab.
pub(crate) struct Bench<'a> {
    lab: &'a Lab,
    plan: Plan,
    audit: Audit,
    rows: Vec<Row>,
}

/// Installs with more arguments for helm and measures; a row that is out of its budget is a row, not an error.
///
/// # Errors
/// Something does not become ready at all.
pub async fn measure(lab: &Lab, plan: Plan, helm: &[&str]) -> anyhow::Result<Vec<Row>> {
    lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
    // Without a base policy the user's is the first: the time from its creation is the controllers' own.
    let extra = ["--set=clusterPolicy.enabled=false", RESYNC];
    let extra = [&extra, helm].concat();
    lab.helm_install(&input("values-gpu.yaml"), &extra).await?;
    let mut bench = Bench::new(lab, plan);
    bench.leaders().await?;
    bench.converge().await?;
    bench.idle().await?;
    bench.small_events().await?;
    bench.join().await?;
    bench.restart().await?;
    if plan.admission {
        bench.admission().await?;
    }
    if plan.upgrade {
        bench.upgrade().await?;
    }
    if plan.broken_minute {
        bench.broken_minute().await?;
    }
    Ok(bench.rows)
}

/// What small events cost in a lab of `nodes` GPU nodes whose policy is ready; it leaves one node more, and broken pods.
///
/// # Errors
/// Something does not become ready or does not come to rest.
pub async fn small_events(lab: &Lab, nodes: usize) -> anyhow::Result<Vec<Row>> {
    let plan = Plan {
        nodes,
        broken_minute: true,
        upgrade: false,
        admission: false,
    };
    let mut bench = Bench::new(lab, plan);
    bench.calm(5).await?;
    bench.small_events().await?;
    bench.join().await?;
    bench.broken_minute().await?;
    Ok(bench.rows)
}

impl<'a> Bench<'a> {
    fn new(lab: &'a Lab, plan: Plan) -> Self {
        Self {
            lab,
            plan,
            audit: lab.audit(),
            rows: Vec::new(),
        }
    }

    /// Waits until nothing has been written for so many seconds; returns all requests since the last call.
    async fn calm(&mut self, seconds: u32) -> anyhow::Result<Vec<Request>> {
        let patience = self.patience();
        quiet(&mut self.audit, SECOND * seconds, patience).await
    }

    /// Waits until every controller has a leader and nothing is written.
    async fn leaders(&mut self) -> anyhow::Result<()> {
        for controller in CONTROLLERS {
            let led = || async {
                leader(self.lab, controller)
                    .await
                    .map_err(|error| error.to_string())
            };
            self.lab
                .wait_for(&format!("{controller} has a leader"), MINUTE, led)
                .await?;
        }
        self.calm(5).await.map(drop)
    }

    /// A limit for what grows with the number of simulated nodes, whose pods share this machine.
    fn patience(&self) -> Duration {
        MINUTE.max(SECOND * 2 * u32::try_from(self.plan.nodes).unwrap_or(u32::MAX))
    }

    /// A row of reads and writes together.
    fn requests(&mut self, what: &'static str, budget: usize, requests: &[Request]) {
        let sent = count(requests, Class::Write) + count(requests, Class::Read);
        let row = Row::count(what, sent, budget);
        self.rows.push(row.with_detail(|| {
            format!(
                "{}\n{}",
                lines(requests, Class::Write),
                lines(requests, Class::Read)
            )
        }));
    }

    /// CPU seconds that our controllers have used until now.
    fn cpu(&self) -> f64 {
        self.ours().iter().map(|usage| usage.cpu_seconds).sum()
    }

    fn ours(&self) -> Vec<Usage> {
        self.usage_of(&CONTROLLERS)
    }

    /// What the processes of these Deployments use.
    fn usage_of(&self, deployments: &[&str]) -> Vec<Usage> {
        let mut usage = self.lab.usage();
        usage.retain(|usage| {
            deployments
                .iter()
                .any(|name| usage.name.contains(&format!("_{name}-")))
        });
        usage
    }
}
