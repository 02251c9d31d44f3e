{{/* Labels of every object of a chart. Call with dict "scope" . "name" NAME ["component" COMPONENT]. */}}
{{- define "tessera.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .scope.Release.Name }}
app.kubernetes.io/version: {{ .scope.Chart.AppVersion | default .scope.Chart.Version | quote }}
app.kubernetes.io/component: {{ .component | default "controller" }}
app.kubernetes.io/part-of: tessera
app.kubernetes.io/managed-by: {{ .scope.Release.Service }}
{{- end }}

{{/* The labels that never change: Deployments and Services select by them. */}}
{{- define "tessera.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .scope.Release.Name }}
{{- end }}

{{/*
The image of one of our binaries. The registry is the chart's own, else `global.imageRegistry`, else ghcr.io; a digest wins over a tag.
Call with dict "scope" . "name" BINARY "image" IMAGE-VALUES.
*/}}
{{- define "tessera.image" -}}
{{- $image := .image | default dict -}}
{{- $registry := $image.registry | default ((.scope.Values.global).imageRegistry) | default "ghcr.io" -}}
{{- $repository := $image.repository | default (printf "tessera-gpu/tessera/%s" .name) -}}
{{- if $image.digest -}}
{{ printf "%s/%s@%s" $registry $repository $image.digest }}
{{- else -}}
{{ printf "%s/%s:%s" $registry $repository ($image.tag | default .scope.Chart.AppVersion | toString) }}
{{- end }}
{{- end }}

{{/* Pull secrets as a YAML list of {name}; takes strings and {name: ...}. The chart's own list, else `global.imagePullSecrets`. */}}
{{- define "tessera.pullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets | default ((.Values.global).imagePullSecrets) -}}
{{- range $secrets }}
- name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end }}

{{/* A duration for a flag: a plain number is seconds. */}}
{{- define "tessera.duration" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ printf "%ds" (int64 .) }}{{ end }}
{{- end }}

{{/* Pod Security "restricted", pod level. */}}
{{- define "tessera.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Pod Security "restricted", container level. */}}
{{- define "tessera.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: ["ALL"]
seccompProfile:
  type: RuntimeDefault
{{- end }}
