{{- define "coap.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "coap.secret" -}}
{{ .Values.cluster.existingSecret | default (printf "%s-cluster" .Release.Name) }}
{{- end }}
