{{/*
A Job that runs `kubectl-tessera` at a point of the release's life, with a ServiceAccount of its own that exists only as long.
Call with dict "scope" . "name" NAME "on" EVENTS "rights" {...} "image" IMAGE-VALUES "args" [...] "deadline" SECONDS.
*/}}
{{- define "tessera.hook" -}}
{{- $setup := dict "helm.sh/hook" .on "helm.sh/hook-weight" "-10" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $context := merge (dict "component" "hook" "annotations" $setup) . -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .scope.Release.Namespace }}
  {{- include "tessera.rightsMeta" $context | nindent 2 }}
automountServiceAccountToken: false
---
{{ include "tessera.rights" $context | trim | trimPrefix "---" | trim }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" $context | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-weight: "0"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 3
  activeDeadlineSeconds: {{ int .deadline }}
  template:
    metadata:
      labels:
        {{- include "tessera.labels" $context | nindent 8 }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      restartPolicy: Never
      {{- with include "tessera.pullSecrets" .scope }}
      imagePullSecrets:
        {{- . | trim | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "tessera.podSecurityContext" . | nindent 8 }}
      {{- with .scope.Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .scope.Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: kubectl-tessera
          image: {{ include "tessera.image" (dict "scope" .scope "name" "kubectl-tessera" "image" .image) }}
          imagePullPolicy: {{ (.image).pullPolicy | default "IfNotPresent" }}
          args:
            {{- toYaml .args | nindent 12 }}
          env:
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          resources:
            requests:
              cpu: 10m
              memory: 32Mi
            limits:
              memory: 256Mi
          securityContext:
            {{- include "tessera.containerSecurityContext" . | nindent 12 }}
{{- end }}

{{/*
A hook that stops controllers and takes away what they made.
Call with dict "scope" . "name" NAME "on" EVENTS "controllers" [NAMES; empty: all]. Values read: uninstall.{enabled, image, timeoutSeconds}.
*/}}
{{- define "tessera.uninstallHook" -}}
{{- $uninstall := .scope.Values.uninstall -}}
{{- if $uninstall.enabled }}
{{- $args := list "uninstall" "--namespace=$(POD_NAMESPACE)" (printf "--timeout=%ds" (int $uninstall.timeoutSeconds)) -}}
{{- range .controllers }}
{{- $args = append $args (printf "--controller=%s" .) }}
{{- end }}
{{- $library := index .scope.Subcharts "tessera-controller" -}}
{{ include "tessera.hook" (dict "scope" .scope "name" .name "on" .on "args" $args
    "rights" ($library.Files.Get "files/uninstall-rbac.yaml" | fromYaml)
    "image" $uninstall.image "deadline" (add $uninstall.timeoutSeconds 60)) }}
{{- end }}
{{- end }}
