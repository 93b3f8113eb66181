package turn

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// defaultGrace is how many seconds a Pod that ends serves its allocations, as in STUNner.
const defaultGrace = 3600

// template is that of the Pods of a Gateway. It does not contain the configuration, so that a change of it restarts no Pod.
func (t *translation) template(g *gate) *corev1.PodTemplateSpec {
	spec := &g.plane.Spec
	labels := map[string]string{}
	maps.Copy(labels, spec.Labels)
	maps.Copy(labels, podLabels(g))
	annotations := map[string]string{}
	maps.Copy(annotations, spec.Annotations)
	annotations[labelGateway] = nameOf(g).String()
	pod := corev1.PodSpec{
		Containers:                    []corev1.Container{t.container(g)},
		TerminationGracePeriodSeconds: new(deref(spec.TerminationGracePeriodSeconds, defaultGrace)),
		HostNetwork:                   spec.HostNetwork,
		Affinity:                      spec.Affinity,
		SecurityContext:               spec.SecurityContext,
		Tolerations:                   spec.Tolerations,
		TopologySpreadConstraints:     spec.TopologySpreadConstraints,
		ImagePullSecrets:              spec.ImagePullSecrets,
		AutomountServiceAccountToken:  new(false), // a gateway needs nothing of the API server
	}
	if spec.HostNetwork {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	if spec.Image == "" { // it is Weir's
		pod.Volumes = []corev1.Volume{{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("64Mi"))}}}}
		if pod.SecurityContext == nil {
			pod.SecurityContext = &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
		}
	}
	return &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: pod}
}

// container is the gateway. Its command line and environment are stunnerd's, whichever program the image has.
func (t *translation) container(g *gate) corev1.Container {
	spec := &g.plane.Spec
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	c := corev1.Container{
		Name: instance, Image: spec.Image, ImagePullPolicy: deref(spec.ImagePullPolicy, corev1.PullIfNotPresent),
		Command: []string{"stunnerd"}, Args: []string{"-w", "--udp-thread-num=16"}, EnvFrom: spec.EnvFrom,
		Env: []corev1.EnvVar{
			field("STUNNER_ADDR", "status.podIP"), field("STUNNER_NODE_ADDR", "status.hostIP"), field("STUNNER_NODENAME", "spec.nodeName"),
			{Name: "STUNNER_NAME", Value: g.Name},
			{Name: "STUNNER_NAMESPACE", Value: g.Namespace},
			{Name: "STUNNER_CONFIG_ORIGIN", Value: t.options.Discovery},
		},
		Ports:           []corev1.ContainerPort{{Name: "metrics-port", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP}},
		SecurityContext: spec.ContainerSecurityContext,
	}
	if len(spec.Command) > 0 {
		c.Command = spec.Command
	}
	if len(spec.Args) > 0 {
		c.Args = spec.Args
	}
	c.Env = append(c.Env, spec.Env...)
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	if spec.Resources != nil {
		c.Resources = *spec.Resources
	}
	if !spec.DisableHealthCheck {
		c.LivenessProbe, c.ReadinessProbe = probe("/live", 15), probe("/ready", 2)
	}
	if spec.Image == "" {
		weirs(&c, g, t.options.Image)
	}
	return c
}

// weirs adds what Weir's own image has: a file system that is not written to but for the directory of its sockets and its last configuration.
func weirs(c *corev1.Container, g *gate, image string) {
	c.Image = image
	c.Env = append(c.Env, corev1.EnvVar{Name: "XDG_RUNTIME_DIR", Value: "/run"})
	if len(g.plane.Spec.Command) == 0 {
		c.Command = []string{"/usr/bin/weir", "turn", "stunnerd"}
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "run", MountPath: "/run"}}
	if len(g.plane.Spec.Args) == 0 {
		// The last configuration outlives the container, and the allocations that are left when the grace is over end before it is killed.
		const margin = 5
		grace := deref(g.plane.Spec.TerminationGracePeriodSeconds, defaultGrace)
		c.Args = append(c.Args, "--state=/run/weir", fmt.Sprintf("--drain-timeout=%ds", max(grace-margin, 1)))
	}
	if c.SecurityContext != nil {
		return
	}
	capabilities := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	for _, l := range g.listeners {
		if l.served() && l.port(g) < 1024 {
			capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		}
	}
	switch g.plane.Spec.OffloadEngine {
	case "", "None":
	default:
		capabilities.Add = append(capabilities.Add, "BPF", "NET_ADMIN", "PERFMON")
	}
	c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: capabilities}
}

func probe(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(healthPort), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: 3, TimeoutSeconds: 1,
	}
}
