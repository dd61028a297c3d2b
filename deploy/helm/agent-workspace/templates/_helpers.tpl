{{- /* Labels that select the pods of the service. They never change. */ -}}
{{- define "agent-workspace.selector" -}}
app.kubernetes.io/name: agent-workspace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent-workspace.labels" -}}
{{ include "agent-workspace.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Labels that select the pod of the automations service. They never change. */ -}}
{{- define "agent-workspace.automationsSelector" -}}
app.kubernetes.io/name: agent-workspace-automations
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent-workspace.automationsLabels" -}}
{{ include "agent-workspace.automationsSelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The pods of the service, as a peer of a network policy in another namespace. */ -}}
{{- define "agent-workspace.peer" -}}
namespaceSelector:
  matchLabels:
    kubernetes.io/metadata.name: {{ .Release.Namespace }}
podSelector:
  matchLabels:
    {{- include "agent-workspace.selector" . | nindent 4 }}
{{- end }}

{{- /* Fails for values that the schema cannot judge. */ -}}
{{- define "agent-workspace.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: set it to the image of the service, e.g. registry.example.org/agent-workspace" }}
{{- end }}
{{- if not .Values.database.secretName }}
{{- fail "database.secretName is empty: the chart brings no database; name a Secret whose key storage-url is the URL of a Postgres" }}
{{- end }}
{{- if not .Values.masterKey.secretName }}
{{- fail "masterKey.secretName is empty: name a Secret whose key master-key is 32 bytes in base64" }}
{{- end }}
{{- with .Values.kubernetes }}
{{- if eq .namespace $.Release.Namespace }}
{{- fail (printf "kubernetes.namespace is the namespace of the release, %s: sandboxes need one of their own" .namespace) }}
{{- end }}
{{- $apis := $.Capabilities.APIVersions }}
{{- $isServed := or ($apis.Has "agents.x-k8s.io/v1") ($apis.Has "agents.x-k8s.io/v1beta1") }}
{{- if and (eq .engine "agent_sandbox") .checkEngine (not $isServed) }}
{{- fail "kubernetes.engine is agent_sandbox, but the cluster serves no Sandbox resources: install kubernetes-sigs/agent-sandbox 0.5.4 or newer, choose the engine auto or pods, or set kubernetes.checkEngine to false where no cluster is asked" }}
{{- end }}
{{- end }}
{{- with .Values.automations }}
{{- if and .enabled (not .image.repository) }}
{{- fail "automations.image.repository is empty: build the image with deploy/automations/Dockerfile" }}
{{- end }}
{{- if and .enabled (not .secretName) }}
{{- fail "automations.secretName is empty: name a Secret with the keys automations-service-key and automations-values-key, random texts of 32 characters or more" }}
{{- end }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- fail "ingress.hosts is empty: name the host of publicUrl" }}
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.parentRefs is empty: name a Gateway" }}
{{- end }}
{{- end }}
