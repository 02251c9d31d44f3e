{{/*
A Role and a ClusterRole with their bindings to the ServiceAccount NAME, each only where there are rules.
Call with dict "scope" . "name" NAME "rights" {cluster: [...], namespaced: [...]} ["component" C] ["annotations" {...}].
*/}}
{{- define "tessera.rights" -}}
{{- $context := . -}}
{{- with .rights.cluster -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "tessera.clusterName" $context }}
  {{- include "tessera.rightsMeta" $context | nindent 2 }}
rules:
  {{- toYaml . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "tessera.clusterName" $context }}
  {{- include "tessera.rightsMeta" $context | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "tessera.clusterName" $context }}
subjects:
  - kind: ServiceAccount
    name: {{ $context.name }}
    namespace: {{ $context.scope.Release.Namespace }}
{{- end }}
{{- with .rights.namespaced }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $context.name }}
  namespace: {{ $context.scope.Release.Namespace }}
  {{- include "tessera.rightsMeta" $context | nindent 2 }}
rules:
  {{- toYaml . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $context.name }}
  namespace: {{ $context.scope.Release.Namespace }}
  {{- include "tessera.rightsMeta" $context | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $context.name }}
subjects:
  - kind: ServiceAccount
    name: {{ $context.name }}
    namespace: {{ $context.scope.Release.Namespace }}
{{- end }}
{{- end }}

{{/* Cluster-wide names say whose they are; NVIDIA's operand names already do. */}}
{{- define "tessera.clusterName" -}}
{{- if hasPrefix "nvidia-" .name }}{{ .name }}{{ else }}tessera-{{ .name }}{{ end }}
{{- end }}

{{- define "tessera.rightsMeta" -}}
labels:
  {{- include "tessera.labels" . | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
ServiceAccounts and rights of a controller's operands, from files/operands.yaml (name -> {cluster, namespaced}).
They are static so that no controller needs rights on the cluster's RBAC.
*/}}
{{- define "tessera.operands" -}}
{{- $scope := . -}}
{{- range $name, $rights := (.Files.Get "files/operands.yaml" | fromYaml) }}
{{- $context := dict "scope" $scope "name" $name "component" "operand" "rights" $rights }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" $context | nindent 4 }}
{{- with include "tessera.rights" $context | trim | trimPrefix "---" }}
---
{{ . | trim }}
{{- end }}
{{- end }}
{{- end }}
