{{/*
Default images of the operands, as environment variables of their controller: only where a registry was set for all
images. files/images.yaml (environment name -> image) is generated from the default image set that the controllers carry.
*/}}
{{- define "tessera.operandImages" -}}
{{- $registry := (.Values.global).imageRegistry -}}
{{- if $registry }}
{{- range $name, $image := (.Files.Get "files/images.yaml" | fromYaml) }}
- name: {{ $name }}
  value: {{ printf "%s/%s" $registry (join "/" (rest (splitList "/" $image))) }}
{{- end }}
{{- else -}}
[]
{{- end }}
{{- end }}
