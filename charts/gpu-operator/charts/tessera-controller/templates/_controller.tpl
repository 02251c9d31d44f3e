{{/*
Everything that one controller consists of. Call with dict
  "scope"  the chart's scope (Values, Files, Release, Chart)
  "name"   the binary, which is also the name of the Deployment, ServiceAccount and Lease
  "env"    further environment variables, a list of {name, value} (optional)
  "args", "ports", "mounts", "volumes"  further ones of the container and the pod, lists (optional)
*/}}
{{- define "tessera.controller" -}}
{{ include "tessera.serviceAccount" . }}
---
{{ include "tessera.rights" (dict "scope" .scope "name" .name "rights" (.scope.Files.Get "files/rbac.yaml" | fromYaml)) }}
---
{{ include "tessera.deployment" . }}
---
{{ include "tessera.metricsService" . }}
{{- if .scope.Values.podDisruptionBudget.enabled }}
---
{{ include "tessera.podDisruptionBudget" . }}
{{- end }}
{{- if .scope.Values.metrics.serviceMonitor.enabled }}
---
{{ include "tessera.serviceMonitor" . }}
{{- end }}
{{- end }}

{{- define "tessera.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" . | nindent 4 }}
  {{- with .scope.Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{- define "tessera.deployment" -}}
{{- $values := .scope.Values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" . | nindent 4 }}
  {{- with $values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ int $values.replicas }}
  selector:
    matchLabels:
      {{- include "tessera.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "tessera.labels" . | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      {{- with include "tessera.pullSecrets" .scope }}
      imagePullSecrets:
        {{- . | trim | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "tessera.podSecurityContext" . | nindent 8 }}
      terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- include "tessera.affinity" . | nindent 8 }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        {{- include "tessera.container" . | nindent 8 }}
      {{- with .volumes }}
      volumes:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{/* The chart's own affinity, else replicas keep apart where they can. */}}
{{- define "tessera.affinity" -}}
{{- with .scope.Values.affinity -}}
{{ toYaml . }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "tessera.selector" . | nindent 12 }}
{{- end }}
{{- end }}

{{- define "tessera.container" -}}
{{- $values := .scope.Values -}}
- name: controller
  image: {{ include "tessera.image" (dict "scope" .scope "name" .name "image" $values.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
    {{- include "tessera.args" .scope | nindent 4 }}
    {{- with .args }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    {{- include "tessera.env" . | nindent 4 }}
  ports:
    - name: metrics
      containerPort: {{ int $values.ports.metrics }}
      protocol: TCP
    - name: health
      containerPort: {{ int $values.ports.health }}
      protocol: TCP
    {{- with .ports }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .mounts }}
  volumeMounts:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  startupProbe:
    httpGet: {path: /healthz, port: health}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /healthz, port: health}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  readinessProbe:
    httpGet: {path: /readyz, port: health}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  resources:
    {{- include "tessera.resources" $values.resources | nindent 4 }}
  securityContext:
    {{- include "tessera.containerSecurityContext" . | nindent 4 }}
{{- end }}

{{/* Measured need of a controller is a few MiB and milli-cores; the memory limit leaves room for thousands of nodes. */}}
{{- define "tessera.resources" -}}
{{- with . -}}
{{ toYaml . }}
{{- else -}}
requests:
  cpu: 20m
  memory: 64Mi
limits:
  memory: 256Mi
{{- end }}
{{- end }}

{{- define "tessera.args" -}}
{{- $values := .Values -}}
- --bind-address=$(POD_IP)
- --metrics-port={{ int $values.ports.metrics }}
- --health-port={{ int $values.ports.health }}
{{- /* Without leader election (the webhook) there is nothing to reconcile either. */}}
{{- with $values.leaderElection }}
- --reconcile-interval={{ include "tessera.duration" ($values.reconcileInterval | default "10m") }}
- --max-concurrent-reconciles={{ int ($values.maxConcurrentReconciles | default 1) }}
- --retry-delay={{ include "tessera.duration" ($values.retryDelay | default "1m") }}
{{- end }}
- --request-timeout={{ include "tessera.duration" $values.requestTimeout }}
{{- with $values.leaderElection }}
- --leader-elect={{ .enabled }}
- --lease-duration={{ include "tessera.duration" .leaseDuration }}
- --renew-deadline={{ include "tessera.duration" .renewDeadline }}
- --retry-period={{ include "tessera.duration" .retryPeriod }}
{{- end }}
- --log-format={{ $values.log.format | default "json" }}
- --log-level={{ $values.log.level | default "info" }}
{{- end }}

{{- define "tessera.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- range .env }}
- name: {{ .name }}
  value: {{ .value | quote }}
{{- end }}
{{- with .scope.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tessera.metricsService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}-metrics
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" . | nindent 4 }}
  {{- with .scope.Values.metrics.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # Headless: a scraper wants every replica, not one of them.
  clusterIP: None
  selector:
    {{- include "tessera.selector" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ int .scope.Values.ports.metrics }}
      targetPort: metrics
      protocol: TCP
{{- end }}

{{/* One at most is taken away at a time; unlike minAvailable this never blocks the drain of a single replica. */}}
{{- define "tessera.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .scope.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "tessera.selector" . | nindent 6 }}
{{- end }}

{{- define "tessera.serviceMonitor" -}}
{{- $monitor := .scope.Values.metrics.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ .name }}
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" . | nindent 4 }}
    {{- with $monitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  namespaceSelector:
    matchNames: [{{ .scope.Release.Namespace }}]
  selector:
    matchLabels:
      {{- include "tessera.selector" . | nindent 6 }}
  endpoints:
    - port: metrics
      interval: {{ $monitor.interval }}
      {{- with $monitor.scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
{{- end }}
