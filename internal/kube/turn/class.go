package turn

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// class reads a GatewayClass of ours, with its GatewayConfig and Dataplane, and finds its Gateways.
func (t *translation) class(from *gatewayv1.GatewayClass) {
	class := from.DeepCopy()
	t.result.Classes = append(t.result.Classes, class)
	base := gate{}
	base.config, base.wrong = t.configOf(class)
	if base.wrong == nil {
		base.plane, base.wrong = t.planeOf(base.config)
	}
	if base.wrong == nil {
		base.auth, base.wrong = t.auth(base.config)
	}
	if base.wrong != nil {
		t.set(&class.Status.Conditions, class.Generation, no(gatewayv1.GatewayClassConditionStatusAccepted, gatewayv1.GatewayClassReasonInvalidParameters, base.wrong.Error()))
		t.warn(from, "GatewayClass", "InvalidParameters", base.wrong.Error())
	} else {
		t.set(&class.Status.Conditions, class.Generation, yes(gatewayv1.GatewayClassConditionStatusAccepted, gatewayv1.GatewayClassReasonAccepted, "served by "+t.options.Controller))
	}
	for _, g := range t.world.Gateways {
		if string(g.Spec.GatewayClassName) == class.Name {
			one := base
			one.Gateway = g.DeepCopy()
			t.gates[nameOf(g)] = &one
		}
	}
}

// configOf is the GatewayConfig that a class names.
func (t *translation) configOf(class *gatewayv1.GatewayClass) (*stunnerv1.GatewayConfig, error) {
	ref := class.Spec.ParametersRef
	switch {
	case ref == nil:
		return nil, fmt.Errorf("spec.parametersRef: missing; name a GatewayConfig of group %s, with its namespace", stunnerv1.Group)
	case string(ref.Group) != stunnerv1.Group || ref.Kind != "GatewayConfig":
		return nil, fmt.Errorf("spec.parametersRef: %s of group %q is not read here; name a GatewayConfig of group %s", ref.Kind, ref.Group, stunnerv1.Group)
	case ref.Namespace == nil || *ref.Namespace == "":
		return nil, fmt.Errorf("spec.parametersRef.namespace: missing; write the namespace of GatewayConfig %s", ref.Name)
	}
	name := types.NamespacedName{Namespace: string(*ref.Namespace), Name: ref.Name}
	config := t.configs[name]
	if config == nil {
		return nil, fmt.Errorf("there is no GatewayConfig %s; create it", name)
	}
	if config.Spec.UserQuota < 0 {
		return nil, fmt.Errorf("GatewayConfig %s: userQuota: %d allocations; write a number above 0, or 0 for no limit", name, config.Spec.UserQuota)
	}
	return config, nil
}

func (t *translation) planeOf(config *stunnerv1.GatewayConfig) (*stunnerv1.Dataplane, error) {
	if t.options.Legacy { // the user runs the Pods
		return &stunnerv1.Dataplane{}, nil
	}
	name := deref(config.Spec.Dataplane, defaultPlane)
	plane := t.dataplanes[types.NamespacedName{Name: name}]
	if plane == nil {
		return nil, fmt.Errorf("GatewayConfig %s: there is no Dataplane %s; create it, or name another one in spec.dataplane", nameOf(config), name)
	}
	return plane, nil
}

// auth is what the GatewayConfig or the Secret that it names says about credentials. Errors contain none.
func (t *translation) auth(config *stunnerv1.GatewayConfig) (Auth, error) {
	spec := &config.Spec
	values := map[string]*string{"type": spec.AuthType, "username": spec.Username, "password": spec.Password, "secret": spec.SharedSecret}
	source := "GatewayConfig " + nameOf(config).String()
	if ref := spec.AuthRef; ref != nil {
		name, err := t.secretName(*ref, from{stunnerv1.Group, "GatewayConfig", config.Namespace})
		if err != nil {
			return Auth{}, fmt.Errorf("%s: authRef: %w", source, err)
		}
		secret := t.secrets[name]
		if secret == nil {
			return Auth{}, fmt.Errorf("%s: authRef: there is no Secret %s; create it", source, name)
		}
		source = "Secret " + name.String()
		for key := range values {
			values[key] = nil
			if value, ok := secret.Data[key]; ok {
				values[key] = new(string(value))
			}
		}
		if value, ok := secret.Data["sharedSecret"]; ok && values["secret"] == nil {
			values["secret"] = new(string(value))
		}
	}
	auth, err := credentials(values)
	if err != nil {
		return Auth{}, fmt.Errorf("%s: %w", source, err)
	}
	auth.Realm = deref(spec.Realm, defaultRealm)
	if spec.STUNMode {
		auth.Type, auth.Credentials = "none", map[string]string{}
	}
	return auth, nil
}

// credentials selects the values that belong to a type of authentication.
func credentials(values map[string]*string) (Auth, error) {
	auth := Auth{Credentials: map[string]string{}}
	var needs []string
	switch kind := deref(values["type"], "static"); kind {
	case "static", "plaintext":
		auth.Type, needs = "static", []string{"username", "password"}
	case "ephemeral", "longterm", "timewindowed":
		auth.Type, needs = "ephemeral", []string{"secret"}
	case "none":
		auth.Type = kind
	default:
		return auth, fmt.Errorf("authentication of type %q; write static, ephemeral or none", kind)
	}
	for _, key := range needs {
		if deref(values[key], "") == "" {
			return auth, fmt.Errorf("there is no %s, which authentication of type %s needs; write it", key, auth.Type)
		}
		auth.Credentials[key] = *values[key]
	}
	return auth, nil
}
