{{- define "leaf.name" -}}{{ printf "%s-leafbus" .Release.Name | trunc 50 | trimSuffix "-" }}{{- end }}
{{- define "leaf.nodes" -}}{{ include "leaf.name" . }}-nodes{{- end }}
{{- define "leaf.selector" -}}
app.kubernetes.io/name: leafbus
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "leaf.labels" -}}
{{ include "leaf.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "leaf.embedded" -}}{{ if not .Values.nats.url }}true{{ end }}{{- end }}
{{- define "leaf.waits" -}}{{ if ge (int .Values.replicas) 3 }}{{ int .Values.waitSeconds }}{{ else }}0{{ end }}{{- end }}
