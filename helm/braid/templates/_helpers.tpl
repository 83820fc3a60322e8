{{/* The chart's name, overridable, cut to what a label may hold. */}}
{{- define "braid.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
The name of all objects. Cut at 42: "-deliverer" and the hash by which a StatefulSet labels its pods add 21 characters,
and a label holds 63.
*/}}
{{- define "braid.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 42 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 42 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 42 | trimSuffix "-" }}
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

{{/* The labels of a pod: of a dict with the chart's context "root", "component" and further "labels". */}}
{{- define "braid.podLabels" -}}
{{- with .labels }}
{{- toYaml . }}
{{ end }}
{{- /* Without the versions, which would restart the pod at every upgrade of the chart. */ -}}
{{- include "braid.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: braid
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Where a pod runs: of its part of the values. */}}
{{- define "braid.placement" -}}
{{- $placement := dict }}
{{- range $name := list "priorityClassName" "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" }}
{{- with get $ $name }}
{{- $_ := set $placement $name . }}
{{- end }}
{{- end }}
{{- with $placement }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The variables that every container has. */}}
{{- define "braid.env" -}}
- name: HOME
  value: /tmp
- name: TMPDIR
  value: /tmp
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The settings as variables; what the chart itself decides comes last, so that it counts. */}}
{{- define "braid.settings" -}}
{{- range $name, $value := .Values.settings }}
- name: BRAID_{{ $name | upper }}
  value: {{ include "braid.settingValue" $value | quote }}
{{- end }}
{{- if .Values.deliverers.replicas }}
- name: BRAID_DELIVERERS
  value: "0"
{{- end }}
{{- end }}

{{/* The secrets that streams and sinks refer to: streams are read by executors, sinks written by deliverers. */}}
{{- define "braid.envFrom" -}}
{{- if .Values.secrets.values }}
- prefix: BRAID_SECRET_
  secretRef:
    name: {{ include "braid.fullname" . }}-secrets
{{- end }}
{{- range .Values.secrets.existing }}
- prefix: BRAID_SECRET_
  secretRef:
    name: {{ . }}
{{- end }}
{{- end }}

{{/* The mounts that every container has besides that of /tmp and of braid.toml. */}}
{{- define "braid.volumeMounts" -}}
- name: data
  mountPath: /data
{{- range .Values.secrets.files }}
- name: secret-{{ . }}
  mountPath: /etc/braid/secrets/{{ . }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What these mounts are of, less the data: the service has a claim template for them. */}}
{{- define "braid.volumes" -}}
{{- range .Values.secrets.files }}
- name: secret-{{ . }}
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The claim of the data, for pods besides the service's. */}}
{{- define "braid.claimName" -}}
{{- default (printf "data-%s-0" (include "braid.fullname" .)) .Values.persistence.existingClaim }}
{{- end }}

{{/* The values that decide where data are shared must fit each other. */}}
{{- define "braid.checkSharing" -}}
{{- range $what, $on := dict "executors.enabled" .Values.executors.enabled "deliverers.replicas" .Values.deliverers.replicas }}
{{- if $on }}
{{- if not $.Values.persistence.enabled }}
{{- fail (printf "%s needs persistence.enabled: the pods share a volume" $what) }}
{{- end }}
{{- if not (or $.Values.persistence.existingClaim (has "ReadWriteMany" $.Values.persistence.accessModes)) }}
{{- fail (printf "%s needs ReadWriteMany in persistence.accessModes, or persistence.existingClaim: the pods share a volume" $what) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.executors.enabled .Values.master }}
{{- fail "master must be empty with executors.enabled: Kubernetes runs the executors" }}
{{- end }}
{{- if and .Values.deliverers.replicas (hasKey .Values.settings "deliverers") }}
{{- fail "settings.deliverers must be left out with deliverers.replicas: the service then runs none itself" }}
{{- end }}
{{- end }}

{{/* The secret with the first API key, and the key in it. */}}
{{- define "braid.accessSecret" -}}
{{- if .Values.access.existingSecret -}}
name: {{ .Values.access.existingSecret }}
key: {{ .Values.access.existingSecretKey }}
{{- else -}}
name: {{ include "braid.fullname" . }}-access
key: admin-key
{{- end }}
{{- end }}

{{/* Spark's configuration as JSON: what it takes to run executors as pods, and the value sparkConf, which wins. */}}
{{- define "braid.sparkConf" -}}
{{- $conf := dict }}
{{- if .Values.executors.enabled }}
{{- with .Values.executors }}
{{- $conf = dict
  "spark.driver.host" (printf "%s-headless.%s.svc" (include "braid.fullname" $) $.Release.Namespace)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.blockManager.port" "7080"
  "spark.executor.instances" (toString .instances)
  "spark.executor.cores" (toString .cores)
  "spark.executor.memory" .memory
  "spark.executor.memoryOverhead" .memoryOverhead
  "spark.kubernetes.namespace" $.Release.Namespace
  "spark.kubernetes.driver.pod.name" (printf "%s-0" (include "braid.fullname" $))
  "spark.kubernetes.container.image" (include "braid.image" $)
  "spark.kubernetes.container.image.pullPolicy" $.Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/braid/executor/pod.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.executor.disableConfigMap" "true"
  "spark.kubernetes.driver.ownPersistentVolumeClaim" "false"
  "spark.kubernetes.driver.reusePersistentVolumeClaim" "false"
  "spark.kubernetes.driver.service.deleteOnTermination" "false" }}
{{- with .cpuLimit }}
{{- $_ := set $conf "spark.kubernetes.executor.limit.cores" (toString .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.sparkConf }}
{{- $_ := set $conf $name (include "braid.settingValue" $value) }}
{{- end }}
{{- with $conf }}
{{- toJson . }}
{{- end }}
{{- end }}

{{/* A setting as text. Helm reads every number as a float, and would write two million as 2e+06. */}}
{{- define "braid.settingValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}
{{- int64 . }}
{{- else }}
{{- toString . }}
{{- end }}
{{- end }}
