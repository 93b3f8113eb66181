package policyv1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the group and version of the types here.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "weir-lb.github.io", Version: "v1alpha1"}
}

// Install makes the types known to a scheme.
func Install(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &LoadBalancerPolicy{}, &LoadBalancerPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
