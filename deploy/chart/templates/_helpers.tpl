{{- define "vapp.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "vapp.selector" -}}
app.kubernetes.io/name: vapp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vapp.labels" -}}
{{ include "vapp.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "vapp.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "vapp.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "vapp.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "vapp.configMap" -}}
{{ .Values.profile.existingConfigMap | default (printf "%s-profile" (include "vapp.name" .)) }}
{{- end }}

{{/* Annotations of the pods. The plan's hash rolls them; a change of live fields leaves it as it is. */}}
{{- define "vapp.podAnnotations" -}}
{{- with .Values.plan.hash }}
vapp.dev/plan: {{ . | quote }}
{{- end }}
{{- with .Values.plan.lock }}
vapp.dev/lock: {{ . | quote }}
{{- end }}
{{- with .Values.plan.memory }}
vapp.dev/planned-memory: {{ . | quote }}
{{- end }}
{{- with .Values.pod.annotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "vapp.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ div (add .Values.pod.loadSeconds 1) 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "vapp.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "vapp.mounts" -}}
- {name: profile, mountPath: /etc/vapp, readOnly: true}
- name: model
  mountPath: {{ .Values.model.mountPath }}
  {{- with .Values.model.subPath }}
  subPath: {{ . }}
  {{- end }}
  {{- if .Values.model.readOnly }}
  readOnly: true
  {{- end }}
- {name: tmp, mountPath: /tmp}
{{- if .Values.pod.swap }}
- {name: swap, mountPath: /var/tmp}
{{- end }}
{{- if .Values.pod.sharedMemory }}
- {name: shm, mountPath: /dev/shm}
{{- end }}
{{- with .Values.pod.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "vapp.environment" -}}
- {name: HOME, value: /tmp}
- {name: HF_HOME, value: {{ .Values.model.mountPath }}}
{{- with .Values.model.tokenSecret }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ . }}, key: HF_TOKEN}}
{{- end }}
{{- if gt (int .Values.ranks.size) 1 }}
- name: VAPP_RANKS_KEY
  valueFrom: {secretKeyRef: {name: {{ required "ranks.keySecret: the ranks of a group need a Secret with their key" .Values.ranks.keySecret }}, key: key}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}
{{- with .Values.pod.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The template of a pod: (dict "top" $ "role" "leader"|"worker"|"") */}}
{{- define "vapp.pod" -}}
{{- $ := .top }}{{ $v := .top.Values -}}
metadata:
  labels:
    {{- include "vapp.selector" $ | nindent 4 }}
    {{- with .role }}
    vapp.dev/role: {{ . }}
    {{- end }}
    {{- with $v.pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with (include "vapp.podAnnotations" $ | trim) }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "vapp.serviceAccount" $ }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $v.pod.drainSeconds 20 }}
  {{- with $v.pod.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.pod.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with $v.pod.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.pod.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.pod.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.pod.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $v.model.pull }}
  initContainers:
    - name: pull
      image: {{ include "vapp.image" $ }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: [pull, /etc/vapp/{{ $v.profile.file }}]
      env:
        {{- include "vapp.environment" $ | nindent 8 }}
      securityContext:
        {{- include "vapp.security" $ | nindent 8 }}
      {{- with $v.pod.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "vapp.mounts" $ | nindent 8 }}
  {{- end }}
  containers:
    - name: vapp
      image: {{ include "vapp.image" $ }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args:
        - up
        - /etc/vapp/{{ $v.profile.file }}
        {{- if eq .role "leader" }}
        - --leader
        - $(POD_IP):{{ $v.ranks.port }}
        {{- end }}
        {{- range $v.pod.args }}
        - {{ . | quote }}
        {{- end }}
      env:
        {{- include "vapp.environment" $ | nindent 8 }}
      {{- if ne .role "worker" }}
      ports:
        - {name: http, containerPort: {{ $v.pod.port }}}
        {{- if .role }}
        - {name: ranks, containerPort: {{ $v.ranks.port }}}
        {{- end }}
      {{- include "vapp.probes" $ | nindent 6 }}
      {{- /* Routers and proxies have left the pod by then. */}}
      lifecycle: {preStop: {sleep: {seconds: 5}}}
      {{- end }}
      securityContext:
        {{- include "vapp.security" $ | nindent 8 }}
      {{- with $v.pod.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "vapp.mounts" $ | nindent 8 }}
  volumes:
    - name: profile
      configMap: {name: {{ include "vapp.configMap" $ }}}
    - name: model
      {{- if $v.model.claim }}
      persistentVolumeClaim: {claimName: {{ $v.model.claim }}}
      {{- else if $v.model.sizeLimit }}
      emptyDir: {sizeLimit: {{ $v.model.sizeLimit | quote }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
    - {name: tmp, emptyDir: {}}
    {{- with $v.pod.swap }}
    - {name: swap, emptyDir: {sizeLimit: {{ . | quote }}}}
    {{- end }}
    {{- with $v.pod.sharedMemory }}
    - {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ . | quote }}}}
    {{- end }}
    {{- with $v.pod.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
