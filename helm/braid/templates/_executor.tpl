{{/*
The pod that Spark makes each executor from. Spark adds name, image, arguments, CPUs and memory, its labels and
variables, the service's pod as owner, and that it is never restarted: a lost one is replaced by another.
*/}}
{{- define "braid.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "braid.podLabels" (dict "root" . "component" "executor" "labels" .Values.executors.podLabels) | nindent 4 }}
  {{- with .Values.executors.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "braid.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    - name: executor
      image: {{ include "braid.image" . | quote }}
      command: [start, spark-executor]
      workingDir: /tmp
      env:
        {{- include "braid.env" . | nindent 8 }}
      {{- with include "braid.envFrom" . | trim }}
      envFrom:
        {{- . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "braid.volumeMounts" . | nindent 8 }}
        - name: spark-local-dir-tmp
          mountPath: /tmp
  volumes:
    - name: data
      persistentVolumeClaim:
        claimName: {{ include "braid.claimName" . }}
    # Spark takes a volume of such a name for its local directories, and adds none.
    - name: spark-local-dir-tmp
      emptyDir:
        sizeLimit: {{ .Values.tmp.sizeLimit }}
    {{- with include "braid.volumes" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- with include "braid.placement" .Values.executors | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
