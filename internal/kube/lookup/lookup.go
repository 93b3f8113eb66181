// Package lookup reads the configuration of a gateway from outside of its cluster: it finds the Pods of the config discovery service at
// the API server, and reaches one of them through the API server's proxy.
//
//	kubeconfig, or service account ──► API server ── list Pods with the label ──► Pod ── …/pods/NAME:13478/proxy/api/v1/configs/NS/GATEWAY
//
// It needs the verbs list on pods and get on pods/proxy. The configuration has the gateway's credentials.
//
// From inside of the cluster, Get and Dial find the Pods in the same way and connect to their addresses, which needs list on pods alone. A watch does not
// go through the proxy of the API server, because that drops the query of a request for a WebSocket.
//
// Limits: 16 Pods are tried; a configuration has at most discovery.MaxConfig bytes.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weir-lb/weir/internal/kube/discovery"
)

// Label is that of the Pods of a config discovery service.
const Label = "stunner.l7mp.io/config-discovery-service=enabled"

// maxPods is how many Pods are tried: replicas of an operator, of which one is the leader.
const maxPods = 16

// Config says where the cluster is.
type Config struct {
	Kubeconfig string // file; empty: $KUBECONFIG, ~/.kube/config, else the service account of this Pod
	Context    string // of the kubeconfig; empty: its current one
	Namespace  string // of the config discovery service; empty: any
	Port       int    // of the service in its Pods; 0: discovery.DefaultPort
}

// Gateway returns the configuration of a gateway, JSON as the service has it. Errors name what is missing, and the right that lacks.
func Gateway(ctx context.Context, c Config, id discovery.ID) ([]byte, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	candidates, err := c.candidates(ctx, client)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, pod := range candidates {
		config, err := c.read(ctx, client, pod, id)
		if err == nil {
			return config, nil
		}
		failures = append(failures, fmt.Errorf("Pod %s/%s: %w", pod.Namespace, pod.Name, err)) //nolint:staticcheck // a name of Kubernetes
	}
	return nil, errors.Join(failures...)
}

// candidates are the Pods of the service that can answer.
func (c *Config) candidates(ctx context.Context, client *rest.RESTClient) ([]*corev1.Pod, error) {
	pods := new(corev1.PodList)
	err := client.Get().NamespaceIfScoped(c.Namespace, c.Namespace != "").Resource("pods").Param("labelSelector", Label).Param("limit", "500").Do(ctx).Into(pods)
	if err != nil {
		return nil, refused("list Pods of the config discovery service", "list on pods", err)
	}
	all := running(pods.Items)
	if len(all) == 0 {
		return nil, fmt.Errorf("no Pod with the label %s runs%s; name the address of the service", Label, within(c.Namespace))
	}
	return all, nil
}

func within(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// running are the Pods that can answer, those that are ready first.
func running(pods []corev1.Pod) (all []*corev1.Pod) {
	for i := range pods {
		if p := &pods[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *corev1.Pod) int {
		if ready(a) != ready(b) {
			if ready(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all[:min(len(all), maxPods)]
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// read requests the configuration from a Pod through the proxy of the API server.
func (c *Config) read(ctx context.Context, client *rest.RESTClient, pod *corev1.Pod, id discovery.ID) ([]byte, error) {
	port := c.Port
	if port == 0 {
		port = discovery.DefaultPort
	}
	stream, err := client.Get().Namespace(pod.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", pod.Name, port)).
		SubResource("proxy").Suffix(discovery.Path(id)).Stream(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%v: %w", id, discovery.ErrNotFound)
	case err != nil:
		return nil, refused("read the configuration through the API server", "get on pods/proxy", err)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, discovery.MaxConfig+1))
	if err == nil && len(text) > discovery.MaxConfig {
		err = fmt.Errorf("the configuration is longer than %d bytes", discovery.MaxConfig)
	}
	return text, err
}

// refused adds to an error of the API server the right that lacks.
func refused(what, right string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %w; it needs the right to %s", what, err, right)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Client makes a client for the Pods of the API server, and for absolute paths.
func (c *Config) Client() (*rest.RESTClient, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("which API server? Give --kubeconfig, or run in a Pod with a service account: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.APIPath, config.GroupVersion, config.UserAgent = "/api", &corev1.SchemeGroupVersion, "weir"
	config.NegotiatedSerializer, config.WarningHandler = serializer.NewCodecFactory(scheme).WithoutConversion(), rest.NoWarnings{}
	return rest.RESTClientFor(config)
}
