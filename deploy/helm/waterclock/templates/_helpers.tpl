{{- define "waterclock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* A StatefulSet's pods get a number and a hash after this name: 63 characters in all. */}}
{{- define "waterclock.fullname" -}}
{{- $name := include "waterclock.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "waterclock.headless" -}}
{{ include "waterclock.fullname" . }}-instances
{{- end }}

{{- define "waterclock.selector" -}}
app.kubernetes.io/name: {{ include "waterclock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "waterclock.labels" -}}
{{ include "waterclock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Metadata of every object but those of monitoring, which have labels of their own. */}}
{{- define "waterclock.metadata" -}}
name: {{ include "waterclock.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "waterclock.labels" . | nindent 2 }}
{{- end }}

{{- define "waterclock.image" -}}
{{- with .Values.image }}
{{- if not .repository }}
{{- fail "nobody publishes an image of waterclock: build one and name it in image.repository (docs/DEPLOY.md)" }}
{{- end }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "waterclock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "waterclock.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Names under which an open API answers. */}}
{{- define "waterclock.hosts" -}}
{{- $name := include "waterclock.fullname" . }}
{{- $hosts := list $name }}
{{- range list "" ".svc" ".svc.cluster.local" }}
{{- $hosts = append $hosts (printf "%s.%s%s" $name $.Release.Namespace .) }}
{{- end }}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts .Values.ingress.hosts }}{{ end }}
{{- if .Values.httpRoute.enabled }}{{ $hosts = concat $hosts .Values.httpRoute.hostnames }}{{ end }}
{{- concat $hosts .Values.api.hosts | uniq | join "," }}
{{- end }}

{{- /* Whether there is a way from outside. One that leads nowhere is refused. */}}
{{- define "waterclock.outside" -}}
{{- if not .Values.api.enabled }}
{{- fail "ingress and httpRoute lead to the API: set api.enabled" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.apiFrom) }}
{{- fail "the network policy keeps ingress and httpRoute from the API: name their pods in networkPolicy.apiFrom" }}
{{- end }}
{{- end }}

{{- /* The job of the metrics. The rules aggregate by job and look for "waterclock" in it. */}}
{{- define "waterclock.job" -}}
waterclock/{{ .Release.Namespace }}/{{ include "waterclock.fullname" . }}
{{- end }}

{{- /* Without a value: 40 with standbys, so that the instance that has the copy takes over before a stop. */}}
{{- define "waterclock.drainSeconds" -}}
{{- if kindIs "invalid" .Values.drainSeconds }}
{{- if gt (int .Values.config.standbys) 0 }}40{{ else }}0{{ end }}
{{- else }}
{{- .Values.drainSeconds }}
{{- end }}
{{- end }}
