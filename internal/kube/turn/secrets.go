package turn

import (
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// Secrets are those that Translate reads of a World: which the GatewayConfigs of served classes and the listeners of their Gateways name,
// and are allowed to name. It reads the Classes, Configs, Gateways and Grants of the World.
func Secrets(w *World, o Options) (names []types.NamespacedName) {
	t := &translation{world: w, options: o, index: &index{configs: byName(w.Configs)}}
	add := func(ref gatewayv1.SecretObjectReference, by from) {
		if name, err := t.secretName(ref, by); err == nil {
			names = append(names, name)
		}
	}
	served := map[gatewayv1.ObjectName]bool{}
	for _, class := range w.Classes {
		if string(class.Spec.ControllerName) != o.Controller {
			continue
		}
		served[gatewayv1.ObjectName(class.Name)] = true
		if config, err := t.configOf(class); err == nil && config.Spec.AuthRef != nil {
			add(*config.Spec.AuthRef, from{stunnerv1.Group, "GatewayConfig", config.Namespace})
		}
	}
	for _, g := range w.Gateways {
		if !served[g.Spec.GatewayClassName] {
			continue
		}
		for i := range g.Spec.Listeners {
			if l := &g.Spec.Listeners[i]; l.TLS != nil {
				for _, ref := range l.TLS.CertificateRefs {
					add(ref, from{gatewayv1.GroupName, "Gateway", g.Namespace})
				}
			}
		}
	}
	return names
}
