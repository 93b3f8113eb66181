package turn

import "strings"

// The labels and annotations that STUNner's operator puts on what it makes, and those that it reads.
const (
	labelOwned     = "stunner.l7mp.io/owned-by"
	labelGateway   = "stunner.l7mp.io/related-gateway-name"
	labelNamespace = "stunner.l7mp.io/related-gateway-namespace"
	ownedBy        = "stunner"
	labelApp       = "app"
	appStunner     = "stunner"

	annotationServiceType     = "stunner.l7mp.io/service-type"
	annotationMixed           = "stunner.l7mp.io/enable-mixed-protocol-lb"
	annotationTrafficPolicy   = "stunner.l7mp.io/external-traffic-policy"
	annotationUnmanaged       = "stunner.l7mp.io/disable-managed-dataplane"
	annotationNodePorts       = "stunner.l7mp.io/nodeport"
	annotationTargetPorts     = "stunner.l7mp.io/targetport"
	annotationHideHealthCheck = "stunner.l7mp.io/disable-health-check-expose"
	annotationNoAffinity      = "stunner.l7mp.io/disable-session-affinity"
	annotationRelayAddress    = "stunner.l7mp.io/enable-relay-address-discovery"
)

// Names and ports of a data plane, which are STUNner's.
const (
	instance       = "stunner-daemon"
	defaultPlane   = "default"
	defaultRealm   = "stunner.l7mp.io"
	defaultLevel   = "all:INFO"
	health         = "http://:8086"
	healthPort     = 8086
	metricsURL     = "http://:8080/metrics"
	metricsPort    = 8080
	ownAddress     = "$STUNNER_ADDR"
	nodeAddress    = "__node_address_placeholder"
	healthPortName = "gateway-health-check"
)

// enabled reports whether an annotation is true.
func enabled(annotations map[string]string, key string) bool {
	return strings.EqualFold(annotations[key], "true")
}

// notCopied are labels of tools that own the Gateway, and would own what is made for it if it had them too.
func notCopied(label string) bool {
	switch label {
	case "applyset.kubernetes.io/part-of", "applyset.k8s.io/part-of", "app.kubernetes.io/managed-by", "argocd.argoproj.io/instance",
		"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace":
		return true
	}
	return false
}

// annotationsOf are those of a Gateway that what is made for it gets too.
func annotationsOf(all map[string]string) map[string]string {
	copied := map[string]string{}
	for key, value := range all {
		if key != "kubectl.kubernetes.io/last-applied-configuration" {
			copied[key] = value
		}
	}
	return copied
}
