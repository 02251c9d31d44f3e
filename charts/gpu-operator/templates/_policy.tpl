{{/*
The spec of the base ClusterPolicy. Parts of the values are the policy's parts under the same names; the short names of
the inputs are translated (docs/decisions/chart-values.md has the table). Nothing empty is rendered.
*/}}
{{- define "gpu-operator.policySpec" -}}
{{- $values := deepCopy .Values -}}
{{- $spec := dict -}}
{{- range $key := include "gpu-operator.policyParts" . | fromYamlArray }}
{{- $_ := set $spec $key (get $values $key | default dict) }}
{{- end }}
{{- $_ := set $spec "operator" (pick $values.operator "runtimeClass" "defaultRuntime" "labels" "annotations" "initContainer" "use_ocp_driver_toolkit" "metrics") -}}
{{- $_ := set $spec "validator" (omit ($values.validator | default dict) "enabled") -}}
{{- $_ := set $spec "driver" (include "gpu-operator.driver" $spec.driver | fromYaml) -}}
{{- $_ := include "gpu-operator.shortNames" (dict "spec" $spec "values" $values) -}}
{{- $_ := set $spec "devicePlugin" (include "gpu-operator.devicePlugin" $spec.devicePlugin | fromYaml) -}}
{{- range $part := list "devicePlugin" "dcgmExporter" "migManager" }}
{{- $_ := include "gpu-operator.dropConfigData" (index $spec $part) }}
{{- end }}
{{- $_ := include "gpu-operator.turnOff" (dict "spec" $spec "subcharts" .Subcharts) -}}
{{- $_ := include "gpu-operator.operandPullSecrets" (dict "spec" $spec "global" .Values.global) -}}
{{- include "gpu-operator.withoutEmpty" $spec -}}
{{- end }}

{{/* The parts of ClusterPolicy's spec that have their own name in the values too. */}}
{{- define "gpu-operator.policyParts" -}}
[nodeSelector, daemonsets, driver, toolkit, cdi, devicePlugin, gfd, mig, migManager, dcgm, dcgmExporter, nodeStatusExporter,
 hostPaths, gds, gdrcopy, sandboxWorkloads, vfioManager, vgpuManager, vgpuDeviceManager, sandboxDevicePlugin,
 kataSandboxDevicePlugin, kataManager, ccManager, psa, psp]
{{- end }}

{{/* driver.repo is driver.repository; upgradePolicy may be a word. */}}
{{- define "gpu-operator.driver" -}}
{{- $driver := omit . "repo" "nvidiaDriverCRD" -}}
{{- with .repo }}
{{- if and $driver.repository (ne $driver.repository .) }}
{{- fail (printf "values driver.repo (%s) and driver.repository (%s) name the same thing: set one of them" . $driver.repository) }}
{{- end }}
{{- $_ := set $driver "repository" . }}
{{- end }}
{{- $policy := .upgradePolicy | default "rolling" -}}
{{- if kindIs "string" $policy }}
{{- $policy = dict "autoUpgrade" (eq $policy "rolling") }}
{{- else }}
{{- with $policy.gpuPodDeletion }}{{ $_ := set $policy "podDeletion" . }}{{ end }}
{{- $policy = merge (omit $policy "gpuPodDeletion") (dict "autoUpgrade" true) }}
{{- end }}
{{- $_ := set $driver "upgradePolicy" $policy -}}
{{- toYaml $driver -}}
{{- end }}

{{/* containerRuntime -> toolkit and cdi, dcgm.exporter -> dcgmExporter, devicePlugin.migManager -> migManager. Changes `spec`. */}}
{{- define "gpu-operator.shortNames" -}}
{{- $spec := .spec -}}
{{- $runtime := .values.containerRuntime | default dict -}}
{{- include "gpu-operator.fold" (dict "spec" $spec "part" "toolkit" "short" (omit $runtime "cdi") "name" "containerRuntime") -}}
{{- include "gpu-operator.fold" (dict "spec" $spec "part" "cdi" "short" $runtime.cdi "name" "containerRuntime.cdi") -}}
{{- include "gpu-operator.fold" (dict "spec" $spec "part" "dcgmExporter" "short" $spec.dcgm.exporter "name" "dcgm.exporter") -}}
{{- include "gpu-operator.fold" (dict "spec" $spec "part" "migManager" "short" $spec.devicePlugin.migManager "name" "devicePlugin.migManager") -}}
{{- $_ := unset $spec.dcgm "exporter" -}}
{{- $_ := unset $spec.devicePlugin "migManager" -}}
{{- end }}

{{/* Folds the values of a short name into their part of `spec`; the same field twice and different is refused, naming both paths. */}}
{{- define "gpu-operator.fold" -}}
{{- $part := index .spec .part | default dict -}}
{{- $names := . -}}
{{- range $key, $value := .short | default dict }}
{{- if and (hasKey $part $key) (not (kindIs "map" $value)) (ne (toJson (index $part $key)) (toJson $value)) }}
{{- fail (printf "values %s.%s (%v) and %s.%s (%v) name the same thing: set one of them" $names.name $key $value $names.part $key (index $part $key)) }}
{{- end }}
{{- end }}
{{- $_ := set .spec .part (mergeOverwrite (deepCopy $part) (deepCopy (.short | default dict))) -}}
{{- end }}

{{/* devicePlugin.sharing -> devicePlugin.config.sharing. */}}
{{- define "gpu-operator.devicePlugin" -}}
{{- $plugin := omit . "sharing" -}}
{{- range $kind := list "timeSlicing" "mps" }}
{{- $short := index ($.sharing | default dict) $kind | default dict }}
{{- if and $short (ne (toString $short.enabled) "false") }}
{{- $sharing := omit $short "enabled" "replicas" }}
{{- if and (not $short.resources) (not $short.replicas) }}
{{- fail (printf "values devicePlugin.sharing.%s is enabled and needs replicas (how many pods share a card), or resources" $kind) }}
{{- end }}
{{- if not $short.resources }}
{{- $_ := set $sharing "resources" (list (dict "name" "nvidia.com/gpu" "replicas" (int $short.replicas))) }}
{{- end }}
{{- $_ := set $plugin "config" (mergeOverwrite (deepCopy ($plugin.config | default dict)) (dict "sharing" (dict $kind $sharing))) }}
{{- end }}
{{- end }}
{{- toYaml $plugin -}}
{{- end }}

{{/* config.{create, data} are the chart's: they become ConfigMaps (config-maps.yaml). Changes its argument. */}}
{{- define "gpu-operator.dropConfigData" -}}
{{- $part := . -}}
{{- range $key := list "config" "gpuClientsConfig" }}
{{- if hasKey $part $key }}{{ $_ := set $part $key (omit (index $part $key | default dict) "create" "data") }}{{ end }}
{{- end }}
{{- end }}

{{/* A component that is not installed has its operands off: nobody would run them. Changes `spec`. */}}
{{- define "gpu-operator.turnOff" -}}
{{- $operands := dict "driverController" (list "driver" "toolkit" "validator")
      "devicePluginController" (list "devicePlugin" "gfd" "migManager")
      "dcgmMonitorController" (list "dcgm" "dcgmExporter" "nodeStatusExporter") -}}
{{- range $key, $parts := $operands }}
{{- if not (hasKey $.subcharts $key) }}
{{- range $parts }}
{{- $_ := set $.spec . (mergeOverwrite (index $.spec . | default dict) (dict "enabled" false)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The global pull secrets for every operand that has none of its own and is not off. Changes `spec`. */}}
{{- define "gpu-operator.operandPullSecrets" -}}
{{- $names := list -}}
{{- range .global.imagePullSecrets }}{{ $names = append $names (kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name")) }}{{ end -}}
{{- if $names }}
{{- range $part := list "driver" "toolkit" "validator" "devicePlugin" "gfd" "migManager" "dcgm" "dcgmExporter" "nodeStatusExporter" }}
{{- $operand := index $.spec $part | default dict }}
{{- if and (ne (toString $operand.enabled) "false") (not $operand.imagePullSecrets) }}
{{- $_ := set $.spec $part (merge $operand (dict "imagePullSecrets" $names)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The map without nulls, empty maps and empty lists at any depth, and without empty names, images and words. As YAML. */}}
{{- define "gpu-operator.withoutEmpty" -}}
{{- $kept := dict -}}
{{- range $key, $value := . }}
{{- if kindIs "map" $value }}
{{- $value = include "gpu-operator.withoutEmpty" $value | fromYaml }}
{{- end }}
{{- $nothing := or (kindIs "invalid" $value) (and (or (kindIs "map" $value) (kindIs "slice" $value)) (empty $value)) }}
{{- $blank := and (has $key (list "repository" "image" "version" "runtimeClass" "strategy" "name" "configMapName" "secretName")) (eq (toString $value) "") }}
{{- if not (or $nothing $blank) }}{{ $_ := set $kept $key $value }}{{ end }}
{{- end }}
{{- toYaml $kept -}}
{{- end }}
