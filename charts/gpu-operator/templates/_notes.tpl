{{/* Values of NVIDIA's chart that this one accepts and does not use, each with what to do instead. */}}
{{- define "gpu-operator.withoutEffect" -}}
{{- $notes := list -}}
{{- if (.Values.nfd).enabled }}
{{- $notes = append $notes "nfd.enabled: Node Feature Discovery is not part of this chart; install it yourself, or label GPU nodes nvidia.com/gpu.present=true" }}
{{- end }}
{{- if (.Values.platform).openshift }}
{{- $notes = append $notes "platform.openshift: OpenShift needs nothing else of this chart, but its driver toolkit is not used" }}
{{- end }}
{{- range $key := list "repository" "image" "version" }}
{{- if index $.Values.operator $key }}
{{- $notes = append $notes (printf "operator.%s: images of the controllers are set per component (driverController.image, ...) or by global.imageRegistry" $key) }}
{{- end }}
{{- end }}
{{- if or .Values.operator.cleanupCRD .Values.operator.upgradeCRD }}
{{- $notes = append $notes "operator.cleanupCRD, operator.upgradeCRD: CRDs are kept on uninstall and brought up to date by crds.upgrade.enabled" }}
{{- end }}
{{- range $notes }}
- {{ . }}
{{- end }}
{{- end }}
