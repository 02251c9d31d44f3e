{{/* All objects of this component; the umbrella chart renders it with its own values merged in. */}}
{{- define "webhook.objects" -}}
{{- $certificates := .Values.certificates -}}
{{- $secret := $certificates.secretName -}}
{{- if and $certificates.certManager.enabled (not $secret) }}{{ $secret = "webhook-tls" }}{{ end -}}
{{- $args := list
    (printf "--webhook-port=%d" (int .Values.ports.webhook))
    (printf "--ca-lifetime=%s" (include "tessera.duration" $certificates.caLifetime))
    (printf "--certificate-lifetime=%s" (include "tessera.duration" $certificates.lifetime))
    (printf "--settle=%s" (include "tessera.duration" $certificates.settle))
    (printf "--drain=%s" (include "tessera.duration" .Values.drain)) -}}
{{- $more := dict "args" $args "ports" (list (dict "name" "https" "containerPort" (int .Values.ports.webhook) "protocol" "TCP")) -}}
{{- if $secret }}
{{- $_ := set $more "args" (append $args "--certificate-dir=/etc/webhook/certificates") }}
{{- $_ := set $more "volumes" (list (dict "name" "certificates" "secret" (dict "secretName" $secret))) }}
{{- $_ := set $more "mounts" (list (dict "name" "certificates" "mountPath" "/etc/webhook/certificates" "readOnly" true)) }}
{{- end -}}
{{ include "tessera.controller" (merge (dict "scope" . "name" "webhook") $more) }}
---
{{ include "webhook.service" . }}
{{- if .Values.validator.enabled }}
---
{{ include "webhook.configuration" (dict "scope" . "kind" "Validating") }}
{{- end }}
{{- if .Values.mutator.enabled }}
---
{{ include "webhook.configuration" (dict "scope" . "kind" "Mutating") }}
{{- end }}
{{- if .Values.networkPolicy.enabled }}
---
{{ include "webhook.networkPolicy" . }}
{{- end }}
{{- if $certificates.certManager.enabled }}
---
{{ include "webhook.certificate" (dict "scope" . "secret" $secret) }}
{{- end }}
{{- end }}

{{/* By which the API server comes. Its name is in the certificates. */}}
{{- define "webhook.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: webhook
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "tessera.labels" (dict "scope" . "name" "webhook") | nindent 4 }}
spec:
  selector:
    {{- include "tessera.selector" (dict "scope" . "name" "webhook") | nindent 4 }}
  ports:
    - name: https
      port: 443
      targetPort: https
      protocol: TCP
{{- end }}

{{/*
Without entries: the webhook fills them in when it is ready to answer, and keeps them. So nothing is refused before, and helm never
writes a certificate.
*/}}
{{- define "webhook.configuration" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: {{ .kind }}WebhookConfiguration
metadata:
  name: tessera-webhook
  labels:
    {{- include "tessera.labels" (dict "scope" .scope "name" "webhook" "component" "admission") | nindent 4 }}
{{- end }}

{{/* Admission from `from` only (which must hold the API servers), metrics and health from anywhere. */}}
{{- define "webhook.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: webhook
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "tessera.labels" (dict "scope" . "name" "webhook") | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "tessera.selector" (dict "scope" . "name" "webhook") | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - ports:
        - {port: https, protocol: TCP}
      {{- with .Values.networkPolicy.from }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    - ports:
        - {port: metrics, protocol: TCP}
        - {port: health, protocol: TCP}
{{- end }}

{{- define "webhook.certificate" -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: webhook
  namespace: {{ .scope.Release.Namespace }}
  labels:
    {{- include "tessera.labels" (dict "scope" .scope "name" "webhook") | nindent 4 }}
spec:
  secretName: {{ .secret }}
  dnsNames:
    - webhook.{{ .scope.Release.Namespace }}.svc
  issuerRef:
    {{- toYaml .scope.Values.certificates.certManager.issuerRef | nindent 4 }}
{{- end }}
