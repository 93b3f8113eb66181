package bench

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

const kubeTurnName = "turn"

// crds installs the CRDs of STUNner and of Weir.
func (k *kubeSessions) crds() error {
	files, err := filepath.Glob("deploy/operator/crds/*.yaml")
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("deploy/operator/crds: run it in the directory of Weir's source")
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := k.plane.CRDFile(file); err != nil {
			return err
		}
	}
	return nil
}

// startTurn makes a Gateway of the operator's TURN controller, with gateways that let clients reach their own namespace.
func (k *kubeSessions) startTurn() error {
	if err := k.plane.Apply(kubeNamespace, fmt.Appendf(nil, `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: turn}
spec:
  controllerName: weir-lb.github.io/turn
  parametersRef: {group: stunner.l7mp.io, kind: GatewayConfig, name: turn, namespace: %[1]s}
---
apiVersion: stunner.l7mp.io/v1
kind: GatewayConfig
metadata: {name: turn}
spec: {realm: example.com, authType: static, userName: %[2]s, password: %[3]s}
---
apiVersion: stunner.l7mp.io/v1
kind: Dataplane
metadata: {name: default}
spec: {replicas: 1, terminationGracePeriodSeconds: 3600, env: %[4]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[5]s}
spec:
  gatewayClassName: turn
  listeners: [{name: udp, port: 3478, protocol: TURN-UDP}]
---
apiVersion: stunner.l7mp.io/v1
kind: UDPRoute
metadata: {name: peers}
spec: {parentRefs: [{name: %[5]s}], rules: [{backendRefs: [{name: peers}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: peers}
spec: {ports: [{port: 9001, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: peers-1, labels: {kubernetes.io/service-name: peers}}
addressType: IPv4
endpoints: [{addresses: ["10.78.0.2"], conditions: {ready: true}}]
ports: [{port: 9001, protocol: UDP}]
`, kubeNamespace, turnUser, turnPassword, kubeEnvironment(), kubeTurnName), false); err != nil {
		return err
	}
	if err := k.available(kubeTurnName, 1); err != nil {
		return err
	}
	return k.scaleTurn(kubeReplicas) // a Dataplane with one replica leaves the number alone
}

// turnPods are the addresses of the TURN gateways that do not end.
func (k *kubeSessions) turnPods() (addresses []string, err error) {
	var list corev1.PodList
	if err := k.plane.Get("/api/v1/namespaces/"+kubeNamespace+"/pods?labelSelector=stunner.l7mp.io/related-gateway-name%3D"+kubeTurnName, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil && list.Items[i].Status.PodIP != "" {
			addresses = append(addresses, list.Items[i].Status.PodIP)
		}
	}
	return addresses, nil
}

func (k *kubeSessions) rollTurn() error {
	k.rolled++
	if err := k.plane.Merge("/apis/stunner.l7mp.io/v1/dataplanes/default", fmt.Sprintf(`{"spec": {"annotations": {"rolled": "%d"}}}`, k.rolled)); err != nil {
		return err
	}
	return k.newTurn(kubeReplicas)
}

// newTurn waits until the operator has changed the Deployment as the Dataplane says, and its Pods have followed.
func (k *kubeSessions) newTurn(count int32) error {
	if err := k.plane.Await("the operator changes the Deployment of the TURN gateways", func() bool {
		var d struct {
			Spec struct {
				Replicas int32
				Template struct {
					Metadata struct{ Annotations map[string]string }
				}
			}
		}
		err := k.plane.Get(deploymentPath(kubeTurnName), &d)
		return err == nil && d.Spec.Replicas == count && (k.rolled == 0 || d.Spec.Template.Metadata.Annotations["rolled"] == fmt.Sprint(k.rolled))
	}); err != nil {
		return fmt.Errorf("%w%s", err, k.operator.LastOutput())
	}
	return k.available(kubeTurnName, count)
}

func (k *kubeSessions) scaleTurn(count int32) error {
	if err := k.plane.Merge(deploymentPath(kubeTurnName), fmt.Sprintf(`{"spec": {"replicas": %d}}`, count)); err != nil {
		return err
	}
	return k.available(kubeTurnName, count)
}

func (k *kubeSessions) scaleTurnIn() error  { return k.scaleTurn(1) }
func (k *kubeSessions) scaleTurnOut() error { return k.scaleTurn(kubeReplicas) }
