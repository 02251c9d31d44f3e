{{/* Value key -> chart, in the order of installation. */}}
{{- define "gpu-operator.components" -}}
driverController: driver-controller
devicePluginController: device-plugin-controller
dcgmMonitorController: dcgm-monitor-controller
sreagentController: sreagent-controller
webhook: webhook
{{- end }}

{{/*
The values of one component: its own, and for what it leaves empty the umbrella's.
Call with dict "root" $ "values" COMPONENT-VALUES.
*/}}
{{- define "gpu-operator.componentValues" -}}
{{- $root := .root.Values -}}
{{- $values := deepCopy .values -}}
{{- range $key := list "reconcileInterval" "maxConcurrentReconciles" "retryDelay" }}
{{- if not (index $values $key) }}{{ $_ := set $values $key (index $root $key) }}{{ end }}
{{- end }}
{{- range $key := list "resources" "nodeSelector" "tolerations" "affinity" "priorityClassName" "imagePullSecrets" }}
{{- if not (index $values $key) }}
{{- with index $root.operator $key }}{{ $_ := set $values $key . }}{{ end }}
{{- end }}
{{- end }}
{{- $log := $values.log | default dict -}}
{{- $level := $log.level | default $root.log.level | default (dig "logging" "level" "" $root.operator) -}}
{{- /* These switches are the umbrella's, as in the values that users have; the component's own are for its own chart. */}}
{{- range $switch := list "validator" "mutator" }}
{{- if and (hasKey $values $switch) (eq (toString (index $root $switch | default dict).enabled) "false") }}
{{- $_ := set $values $switch (dict "enabled" false) }}
{{- end }}
{{- end }}
{{- $_ := set $values "log" (dict "format" ($log.format | default $root.log.format) "level" $level) -}}
{{- toYaml $values -}}
{{- end }}

{{/* All objects of one component, with its merged values. Call with dict "root" $ "key" KEY "chart" CHART. */}}
{{- define "gpu-operator.renderComponent" -}}
{{- $subchart := index .root.Subcharts .key -}}
{{- $values := include "gpu-operator.componentValues" (dict "root" .root "values" $subchart.Values) | fromYaml -}}
{{- $scope := dict "Values" $values "Files" $subchart.Files "Chart" $subchart.Chart "Release" .root.Release "Capabilities" .root.Capabilities -}}
{{- include (printf "%s.objects" .chart) $scope -}}
{{- end }}

{{/* Values for the hooks' Jobs, which are placed as the controllers are. */}}
{{- define "gpu-operator.hookValues" -}}
{{- $operator := .Values.operator -}}
{{- dict "uninstall" .Values.uninstall "global" .Values.global "imagePullSecrets" ($operator.imagePullSecrets | default list)
    "nodeSelector" $operator.nodeSelector "tolerations" $operator.tolerations | toYaml -}}
{{- end }}
