package turn

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// The ConfigMap of STUNner's legacy mode: the user runs the Pods, one set for all Gateways of a GatewayConfig, with the configuration mounted.
const (
	configMap     = "stunnerd-config"
	configMapFile = "stunnerd.conf"
)

// share finds ports that two Gateways of one GatewayConfig want, since the same Pods serve them.
func (t *translation) share(gates []*gate) {
	type socket struct {
		config   types.NamespacedName
		protocol corev1.Protocol
		port     int
	}
	first := map[socket]string{}
	for _, g := range gates {
		for _, l := range g.listeners {
			if g.config == nil || l.protocol.stunner == "" || l.conflict != "" {
				continue
			}
			at := socket{nameOf(g.config), l.protocol.layer4, l.port(g)}
			if taken := first[at]; taken != "" {
				l.conflict = taken
				continue
			}
			first[at] = nameOf(g).String() + "/" + string(l.Name)
		}
	}
}

// configMaps makes a ConfigMap in the namespace of each GatewayConfig, with the configuration of all its Gateways. While a class is wrong, ConfigMaps stay that would
// otherwise go.
func (t *translation) configMaps(gates []*gate) {
	merged, wrong := map[types.NamespacedName]*Configuration{}, false
	var configs []*stunnerv1.GatewayConfig
	for _, g := range gates {
		if g.wrong != nil {
			wrong = true
			continue
		}
		name, one := nameOf(g.config), t.result.Configurations[nameOf(g)]
		all := merged[name]
		if all == nil {
			all = &Configuration{Version: one.Version, Admin: one.Admin, Auth: one.Auth, Listeners: []Listener{}, Clusters: []Cluster{}}
			all.Admin.Name = instance
			merged[name] = all
			configs = append(configs, g.config)
		}
		all.Listeners = append(all.Listeners, one.Listeners...)
		for i := range one.Clusters {
			if !slices.ContainsFunc(all.Clusters, func(c Cluster) bool { return c.Name == one.Clusters[i].Name }) {
				all.Clusters = append(all.Clusters, one.Clusters[i])
			}
		}
	}
	for _, config := range configs {
		t.configMap(config, merged[nameOf(config)])
	}
	for _, o := range t.world.ConfigMaps {
		made := slices.ContainsFunc(t.result.ConfigMaps, func(m *corev1.ConfigMap) bool { return nameOf(m) == nameOf(o) })
		if o.Name == configMap && !made && wrong {
			t.result.Stay = append(t.result.Stay, o)
		}
	}
}

// configMap makes one. One that is there and is not the GatewayConfig's is not overwritten.
func (t *translation) configMap(config *stunnerv1.GatewayConfig, content *Configuration) {
	text, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("a configuration is no JSON: %v", err)) // it has texts and numbers
	}
	owner := metav1.OwnerReference{APIVersion: stunnerv1.Group + "/v1", Kind: "GatewayConfig", Name: config.Name, UID: config.UID}
	for _, o := range t.world.ConfigMaps {
		ours := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID })
		if o.Name == configMap && o.Namespace == config.Namespace && !ours {
			t.warn(config, "GatewayConfig", "Invalid", foreignConfigMap(o).Error())
			return
		}
	}
	t.result.ConfigMaps = append(t.result.ConfigMaps, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: config.Namespace, Name: configMap, OwnerReferences: []metav1.OwnerReference{owner},
			Labels: map[string]string{labelOwned: ownedBy}, Annotations: map[string]string{labelGateway: nameOf(config).String()},
		},
		Data: map[string]string{configMapFile: string(text)},
	})
}

func foreignConfigMap(o metav1.Object) error {
	return fmt.Errorf("there is a ConfigMap %s that is not the GatewayConfig's (no ownerReference names it); delete it, or write the GatewayConfig into another namespace", nameOf(o))
}
