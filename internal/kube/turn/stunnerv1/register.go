package stunnerv1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of STUNner's objects.
const Group = "stunner.l7mp.io"

// GroupVersion returns the group and version of the types here.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: "v1"} }

// Install makes the types known to a scheme.
func Install(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&GatewayConfig{}, &GatewayConfigList{}, &Dataplane{}, &DataplaneList{}, &UDPRoute{}, &UDPRouteList{}, &StaticService{}, &StaticServiceList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
