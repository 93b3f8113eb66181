{{- define "operator.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "operator.image" -}}
{{ printf "%s:%s" .Values.image.repository .Values.image.tag }}
{{- end }}
{{- define "l4.labels" -}}
app.kubernetes.io/name: weir-l4
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "l4.tls" -}}
{{ .Values.l4.discovery.tlsSecret | default (printf "%s-l4-tls" .Release.Name) }}
{{- end }}
{{- define "l4.token" -}}
{{ .Values.l4.discovery.tokenSecret | default (printf "%s-l4-token" .Release.Name) }}
{{- end }}
{{- /* In the host's network the next Pod takes the pins over; in the Pod's own nothing of them is of use to another Pod. */}}
{{- define "l4.pins" -}}
{{- if .Values.l4.loadBalancer.hostNetwork -}}
/sys/fs/bpf/weir/{{ .Release.Name }}-l4
{{- else -}}
/sys/fs/bpf/weir/$(POD_UID)
{{- end -}}
{{- end }}
