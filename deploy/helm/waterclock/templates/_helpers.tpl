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

{{- /* The job of the metrics. The rules aggregate by job and look for "waterclock" in it. */}}
{{- define "waterclock.job" -}}
waterclock/{{ .Release.Namespace }}/{{ include "waterclock.fullname" . }}
{{- end }}
