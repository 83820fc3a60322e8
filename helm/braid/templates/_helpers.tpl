{{/* The chart's name, overridable, cut to what a label may hold. */}}
{{- define "braid.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
The name of all objects. Cut at 50, since a StatefulSet's pods, its revision labels and this chart's suffixes
add up to 13 characters and a label holds 63.
*/}}
{{- define "braid.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* What never changes over upgrades: the only labels that selectors and volume claim templates may carry. */}}
{{- define "braid.selectorLabels" -}}
app.kubernetes.io/name: {{ include "braid.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels that Kubernetes recommends, less app.kubernetes.io/component, which each object sets itself. */}}
{{- define "braid.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "braid.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: braid
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "braid.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "braid.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "braid.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{/* A setting as text. Helm reads every number as a float, and would write two million as 2e+06. */}}
{{- define "braid.settingValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}
{{- int64 . }}
{{- else }}
{{- toString . }}
{{- end }}
{{- end }}
