//! The lab itself: what it promises to those who write scenarios.

use std::time::Duration;

use tessera_e2e::lab::Lab;

async fn lab(name: &str) -> Lab {
    Lab::bare(name, Vec::new(), |_| {}).await.unwrap()
}

#[tokio::test]
async fn a_pod_runs_as_its_specification_says() {
    let lab = lab("pod").await;
    eprintln!("{:?}", lab.timings());
    for usage in lab.usage() {
        eprintln!("{usage:?}");
    }
    lab.apply(
        r#"
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
"#,
    )
    .await
    .unwrap();
    lab.wait_for(
        "the Deployment is ready",
        Duration::from_secs(20),
        || async {
            let ready = lab
                .kubectl_ok(&[
                    "get",
                    "deploy",
                    "dummy",
                    "-o",
                    "jsonpath={.status.readyReplicas}",
                ])
                .await
                .map_err(|e| e.to_string())?;
            if ready == "1" {
                Ok(())
            } else {
                Err(lab
                    .kubectl_ok(&["get", "pods", "-o", "yaml"])
                    .await
                    .unwrap_or_default())
            }
        },
    )
    .await
    .unwrap();
}
