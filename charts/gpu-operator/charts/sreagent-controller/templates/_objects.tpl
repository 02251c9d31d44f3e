{{/* All objects of this component; the umbrella chart renders it with its own values merged in. */}}
{{- define "sreagent-controller.objects" -}}
{{- $agent := include "tessera.image" (dict "scope" . "name" "sre-agent" "image" .Values.agentImage) -}}
{{- $env := list (dict "name" "SRE_AGENT_IMAGE" "value" $agent) -}}
{{- $secrets := list -}}
{{- range include "tessera.pullSecrets" . | fromYamlArray }}{{ $secrets = append $secrets .name }}{{ end -}}
{{- with $secrets }}
{{- $env = append $env (dict "name" "SRE_AGENT_IMAGE_PULL_SECRETS" "value" (join "," .)) }}
{{- end -}}
{{- with .Values.repairNamespaces }}
{{- $env = append $env (dict "name" "REPAIR_NAMESPACES" "value" (join "," .)) }}
{{- end -}}
{{ include "tessera.controller" (dict "scope" . "name" "sreagent-controller" "env" $env) }}
{{- include "sreagent-controller.agentRoles" . }}
{{- end }}

{{/*
The roles that an agent can have. The controller may bind these and no others, and binds `repair` only where
`autoRepair` is set: without it, a repair is refused by the API server and not only by the agent's code.
*/}}
{{- define "sreagent-controller.agentRoles" -}}
{{- $scope := . -}}
{{- range $role, $rules := (.Files.Get "files/agent-roles.yaml" | fromYaml) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: tessera-sre-agent-{{ $role }}
  labels:
    {{- include "tessera.labels" (dict "scope" $scope "name" "sre-agent" "component" "agent") | nindent 4 }}
rules:
  {{- toYaml $rules | nindent 2 }}
{{- end }}
{{- end }}
