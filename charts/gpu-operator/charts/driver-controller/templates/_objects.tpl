{{/* All objects of this component; the umbrella chart renders it with its own values merged in. */}}
{{- define "driver-controller.objects" -}}
{{ include "tessera.controller" (dict "scope" . "name" "driver-controller" "env" (include "tessera.operandImages" . | fromYamlArray)) }}
{{- include "tessera.operands" . }}
{{- end }}
