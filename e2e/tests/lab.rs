//! The lab itself: what it promises to those who write scenarios.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a scenario fails by panicking and shows what it measured"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use tessera_e2e::lab::{Lab, Order};

const PATIENCE: Duration = Duration::from_secs(30);

async fn lab(name: &str) -> anyhow::Result<Lab> {
    Lab::bare(name, Vec::new(), |_| {}).await
}

/// Waits until a kubectl query prints `want`; shows all pods when it does not.
async fn until(lab: &Lab, what: &str, query: &[&str], want: &str) -> anyhow::Result<()> {
    lab.wait_for(what, PATIENCE, || async {
        let have = lab
            .kubectl_ok(query)
            .await
            .map_err(|error| error.to_string())?;
        if have.trim() == want {
            return Ok(());
        }
        let pods = lab
            .kubectl_ok(&["get", "pods", "-o", "yaml"])
            .await
            .unwrap_or_default();
        Err(format!("it is {have:?}, wanted {want:?}\n{pods}"))
    })
    .await
}

const DUMMY: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green, file.txt: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: dummy}
spec:
  selector: {matchLabels: {app: dummy}}
  template:
    metadata: {labels: {app: dummy}}
    spec:
      initContainers:
      - {name: first, image: registry.example/lab-dummy:v1, args: ["--exit=0"]}
      containers:
      - name: main
        image: registry.example/lab-dummy:v1
        args: ["--bind=$(POD_IP):8080", "--who=$(POD_NAME)"]
        env:
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
        ports: [{name: http, containerPort: 8080, protocol: TCP}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
        volumeMounts: [{name: settings, mountPath: /etc/settings}]
      volumes: [{name: settings, configMap: {name: settings}}]
"#;

#[tokio::test]
async fn a_pod_runs_as_its_specification_says() -> anyhow::Result<()> {
    let lab = lab("pod").await?;
    let start = lab.timings();
    assert!(start.total_seconds < 30.0, "{start:?}");
    lab.apply(DUMMY).await?;
    let ready = [
        "get",
        "deploy",
        "dummy",
        "-o",
        "jsonpath={.status.readyReplicas}",
    ];
    until(&lab, "the Deployment is ready", &ready, "1").await?;

    let field = |path: &'static str| ["get", "pods", "-l", "app=dummy", "-o", path];
    let ip = lab
        .kubectl_ok(&field("jsonpath={.items[0].status.podIP}"))
        .await?;
    let name = lab
        .kubectl_ok(&field("jsonpath={.items[0].metadata.name}"))
        .await?;
    let says = tessera_e2e::http_get(&format!("{ip}:8080"), "/").await?;
    assert!(says.contains(&format!("arg --who={name}\n")), "{says}");
    assert!(
        says.contains("env COLOR=green\n") && says.contains("env KUBERNETES_SERVICE_PORT="),
        "{says}"
    );
    let variable = |name: &str| {
        says.lines()
            .find_map(|line| line.strip_prefix(&format!("env {name}=")))
            .map(str::to_owned)
    };
    let root = variable("LAB_ROOT").unwrap_or_default();
    assert_eq!(
        std::fs::read_to_string(format!("{root}/etc/settings/file.txt"))?,
        "hello"
    );

    let log = lab
        .kubectl_ok(&["logs", "deploy/dummy", "--tail=1"])
        .await?;
    assert!(log.contains("lab-dummy") && log.contains("--who"), "{log}");

    // The token is the ServiceAccount's, and it has that account's rights: none.
    let kubeconfig = variable("KUBECONFIG").unwrap_or_default();
    let me = lab
        .kubectl_ok(&[
            "--kubeconfig",
            &kubeconfig,
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ])
        .await?;
    assert_eq!(me, "system:serviceaccount:default:default");
    let mut audit = lab.audit();
    audit.skip()?;
    assert!(
        !lab.kubectl(&["--kubeconfig", &kubeconfig, "get", "pods"])
            .await?
            .success
    );
    let counts = audit.next_summary()?.account("default");
    assert!(counts.denied >= 1, "{counts}");

    // A crash is repaired at once, a deleted pod is replaced, and the processes are gone with their pods.
    lab.signal_pod("default", &name, Order::Kill)?;
    let restarts = field("jsonpath={.items[0].status.containerStatuses[0].restartCount}");
    until(&lab, "the container runs again", &restarts, "1").await?;
    lab.kubectl_ok(&["delete", "pod", &name]).await?;
    assert!(lab.signal_pod("default", &name, Order::Kill).is_err());
    until(&lab, "the replacement is ready", &ready, "1").await?;
    Ok(())
}

#[tokio::test]
async fn what_cannot_run_says_why_and_jobs_end() -> anyhow::Result<()> {
    let lab = lab("reasons").await?;
    lab.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: no-image}
spec: {containers: [{name: main, image: registry.example/nobody:v1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: no-config}
spec:
  containers:
  - {name: main, image: lab-dummy, env: [{name: A, valueFrom: {configMapKeyRef: {name: absent, key: a}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: no-volume}
spec:
  containers: [{name: main, image: lab-dummy}]
  volumes: [{name: v, secret: {secretName: absent}}]
---
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec: {containers: [{name: main, image: lab-dummy, args: ["--exit=3"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: hanging}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: lab-dummy, livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 2}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: good}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: lab-dummy, args: ["--exit=0"]}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: lab-dummy, args: ["--exit=7"]}]}}}
"#,
    )
    .await?;
    let waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    for (pod, reason) in [
        ("no-image", "ErrImagePull"),
        ("no-config", "CreateContainerConfigError"),
        ("no-volume", "ContainerCreating"),
        ("crashing", "CrashLoopBackOff"),
    ] {
        until(
            &lab,
            &format!("pod {pod} says why"),
            &["get", "pod", pod, "-o", waiting],
            reason,
        )
        .await?;
    }
    let message = "jsonpath={.status.containerStatuses[0].state.waiting.message}";
    let words = lab
        .kubectl_ok(&["get", "pod", "no-volume", "-o", message])
        .await?;
    assert!(
        words.contains("volume \"v\"") && words.contains("\"absent\" not found"),
        "{words}"
    );
    let last = "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}";
    assert_eq!(
        lab.kubectl_ok(&["get", "pod", "crashing", "-o", last])
            .await?,
        "3"
    );
    let why = "jsonpath={.status.containerStatuses[0].lastState.terminated.message}";
    lab.wait_for("the liveness probe restarts", PATIENCE, || async {
        let words = lab
            .kubectl_ok(&["get", "pod", "hanging", "-o", why])
            .await
            .map_err(|error| error.to_string())?;
        if words.starts_with("Liveness probe failed: dial tcp") {
            Ok(())
        } else {
            Err(words)
        }
    })
    .await?;
    for (job, path) in [
        ("good", "jsonpath={.status.succeeded}"),
        ("bad", "jsonpath={.status.failed}"),
    ] {
        until(
            &lab,
            &format!("Job {job} ends"),
            &["get", "job", job, "-o", path],
            "1",
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn evictions_wait_for_budgets() -> anyhow::Result<()> {
    let lab = lab("evictions").await?;
    lab.apply(DUMMY).await?;
    lab.apply("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: all}, spec: {minAvailable: 1, selector: {matchLabels: {app: dummy}}}}").await?;
    until(
        &lab,
        "the budget is known",
        &[
            "get",
            "pdb",
            "all",
            "-o",
            "jsonpath={.status.currentHealthy}",
        ],
        "1",
    )
    .await?;
    let drain = [
        "drain",
        "lab-host",
        "--pod-selector=app=dummy",
        "--ignore-daemonsets",
        "--timeout=2s",
    ];
    let refused = lab.kubectl(&drain).await?;
    assert!(
        !refused.success && refused.stderr.contains("disruption budget"),
        "{refused:?}"
    );
    lab.kubectl_ok(&["delete", "pdb", "all"]).await?;
    lab.kubectl_ok(&[
        "drain",
        "lab-host",
        "--pod-selector=app=dummy",
        "--ignore-daemonsets",
        "--timeout=20s",
    ])
    .await?;
    Ok(())
}

/// Whatever happens to the agent, its children go with it, and the next lab under the same directory starts.
#[tokio::test]
async fn nothing_is_left_of_a_killed_lab() -> anyhow::Result<()> {
    let lab = lab("killed").await?;
    lab.apply(DUMMY).await?;
    until(
        &lab,
        "ready",
        &[
            "get",
            "deploy",
            "dummy",
            "-o",
            "jsonpath={.status.readyReplicas}",
        ],
        "1",
    )
    .await?;
    let processes = lab.usage();
    assert!(
        processes
            .iter()
            .any(|usage| usage.name.starts_with("default_dummy")),
        "{processes:?}"
    );
    lab.kill_agent();
    lab.wait_for("every process is gone", Duration::from_secs(5), || async {
        let alive: Vec<&str> = processes
            .iter()
            .filter(|usage| tessera_e2e::process::Identity::of(usage.pid).is_some())
            .map(|usage| usage.name.as_str())
            .collect();
        if alive.is_empty() {
            Ok(())
        } else {
            Err(format!("{alive:?}"))
        }
    })
    .await?;
    let again = Lab::bare("killed", Vec::new(), |_| {}).await?;
    assert!(again.kubectl(&["get", "nodes"]).await?.success);
    Ok(())
}

#[tokio::test]
async fn a_second_lab_under_the_same_directory_is_refused() -> anyhow::Result<()> {
    let _lab = lab("twice").await?;
    let error = lab_error("twice").await;
    assert!(
        error.contains("already running") && error.contains("cargo xtask down"),
        "{error}"
    );
    Ok(())
}

async fn lab_error(name: &str) -> String {
    match lab(name).await {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: dummy}
spec:
  selector: {app: dummy}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: v1
kind: Pod
metadata: {name: unready, labels: {app: dummy}}
spec:
  containers:
  - name: main
    image: lab-dummy
    args: [--bind=$(POD_IP):8080, --who=unready]
    env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 1}
";

/// Which pod answers at a Service's address.
async fn who(lab: &Lab, target: &str) -> anyhow::Result<String> {
    let mut stream = lab.dial(target).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let line = text.lines().find_map(|l| l.strip_prefix("arg --who="));
    Ok(line.unwrap_or_default().to_owned())
}

/// As webhooks are called: by the Service's address, in turn, and never a pod that is not ready.
#[tokio::test]
async fn services_lead_to_ready_pods() -> anyhow::Result<()> {
    let lab = lab("services").await?;
    lab.apply(&DUMMY.replace("spec:\n  selector", "spec:\n  replicas: 2\n  selector"))
        .await?;
    lab.apply(SERVICE).await?;
    let replicas = "jsonpath={.status.readyReplicas}";
    let query = ["get", "deploy", "dummy", "-o", replicas];
    until(&lab, "two replicas", &query, "2").await?;
    let running = "jsonpath={.status.containerStatuses[0].state.running.startedAt}";
    let running = ["get", "pod", "unready", "-o", running];
    lab.wait_for("the third pod runs", PATIENCE, || async {
        match lab.kubectl_ok(&running).await {
            Ok(text) if !text.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let address = [
        "get",
        "service",
        "dummy",
        "-o",
        "jsonpath={.spec.clusterIP}",
    ];
    let target = format!("{}:80", lab.kubectl_ok(&address).await?);
    let mut answers = BTreeMap::<String, usize>::new();
    for _ in 0..20 {
        *answers.entry(who(&lab, &target).await?).or_default() += 1;
    }
    let counts: Vec<usize> = answers.values().copied().collect();
    assert_eq!(counts, [10, 10], "{answers:?}");
    assert!(!answers.contains_key("unready"), "{answers:?}");

    // Without ready pods, nobody answers; an address that is no Service's is dialled as it is.
    lab.kubectl_ok(&["scale", "deploy", "dummy", "--replicas=0"])
        .await?;
    lab.wait_for("nobody answers", PATIENCE, || async {
        match who(&lab, &target).await {
            Err(error) if error.to_string().contains("no ready pod") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let ip = ["get", "pod", "unready", "-o", "jsonpath={.status.podIP}"];
    let direct = format!("{}:8080", lab.kubectl_ok(&ip).await?);
    assert_eq!(who(&lab, &direct).await?, "unready");
    Ok(())
}
