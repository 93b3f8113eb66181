package policyv1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// LoadBalancerPolicy sets how the load balancer treats the packets of its targets.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=gateway.networking.k8s.io/policy=Direct
// +kubebuilder:resource:path=loadbalancerpolicies,categories=gateway-api,shortName=lbpolicy
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[*].conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.ancestors[*].conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LoadBalancerPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              LoadBalancerPolicySpec   `json:"spec"`
	Status            LoadBalancerPolicyStatus `json:"status,omitempty"`
}

// LoadBalancerPolicyList is a list of them.
//
// +kubebuilder:object:root=true
type LoadBalancerPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LoadBalancerPolicy `json:"items"`
}

// LoadBalancerPolicySpec is the content of a LoadBalancerPolicy.
type LoadBalancerPolicySpec struct {
	// TargetRefs are what the policy is attached to, in its own namespace: Gateways, UDPRoutes, TCPRoutes and Services.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(r, r.group == 'gateway.networking.k8s.io' ? r.kind in ['Gateway', 'UDPRoute', 'TCPRoute'] : r.group == '' && r.kind == 'Service')",message="a target is a Gateway, UDPRoute or TCPRoute of group gateway.networking.k8s.io, or a Service of group \"\""
	// +kubebuilder:validation:XValidation:rule="self.all(r, r.kind == 'Gateway' || !has(r.sectionName))",message="sectionName names a listener, so the kind of the target is Gateway"
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(o, r.kind == o.kind && r.name == o.name && (has(r.sectionName) ? r.sectionName : '') == (has(o.sectionName) ? o.sectionName : '')))",message="each target is named once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	Settings `json:",inline"`
}

// Settings are those of a service of the load balancer; its reference is docs/options.md. A setting that is absent has its default there.
//
// +kubebuilder:validation:XValidation:rule="has(self.affinity) ? (self.affinity == 'cid') == has(self.cid) : true",message="affinity cid and the field cid belong together; remove one, or write both"
// +kubebuilder:validation:XValidation:rule="!has(self.tunnel) || has(self.mode) && self.mode == 'l3dsr'",message="tunnel is of mode l3dsr; remove it, or write mode: l3dsr"
type Settings struct {
	// Mode is how packets reach endpoints: nat, l2dsr or l3dsr. Mode mark needs routes of each node, which no policy can give.
	//
	// +kubebuilder:validation:Enum=nat;l2dsr;l3dsr
	Mode string `json:"mode,omitempty"`
	// Tunnel is the encapsulation of mode l3dsr: ipip or gue.
	//
	// +kubebuilder:validation:Enum=ipip;gue
	Tunnel string `json:"tunnel,omitempty"`
	// Affinity is what keeps to one endpoint: flow, source, cid, no_source_port or destination_port.
	//
	// +kubebuilder:validation:Enum=flow;source;cid;no_source_port;destination_port
	Affinity string `json:"affinity,omitempty"`
	// CID says how connection ids name endpoints.
	CID *CID `json:"cid,omitempty"`
	// Timeouts are idle times of flows.
	Timeouts *Timeouts `json:"timeouts,omitempty"`
	// NewFlowRate is how many new flows a second get an entry; absent means no limit.
	//
	// +kubebuilder:validation:Minimum=1
	NewFlowRate int32 `json:"newFlowRate,omitempty"`
	// Health is an active probe of every endpoint, by each load balancer.
	Health *Health `json:"health,omitempty"`
	// UDPMigration moves UDP flows of an endpoint that a probe takes out at once; false: they stay, and only new ones go elsewhere. Absent
	// means true.
	UDPMigration *bool `json:"udpMigration,omitempty"`
	// Ping is who answers pings of the address: backend or balancer; absent means backend.
	//
	// +kubebuilder:validation:Enum=backend;balancer
	Ping string `json:"ping,omitempty"`
	// Generations are how many earlier Maglev tables a load balancer keeps after a change of endpoints, for flows of another one that has
	// failed; absent means 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4
	Generations int32 `json:"generations,omitempty"`
	// GenerationTime is how long an earlier table is used, 1s to 24h; absent means 5m.
	GenerationTime Duration `json:"generationTime,omitempty"`
}

// CID says which connection ids clients use, and where node ids come from.
type CID struct {
	// Protocols are those whose connection ids are read.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=dtls12;dtls13;quic
	// +listType=set
	Protocols []string `json:"protocols"`
	// Layouts say where the node id is in a connection id.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Layouts []Layout `json:"layouts"`
	// NodeIDs say which node ids a Pod has.
	NodeIDs *NodeIDs `json:"nodeIDs,omitempty"`
}

// NodeIDs say where the node ids of Pods come from.
//
// +kubebuilder:validation:XValidation:rule="self.from == 'Ordinal' || !has(self.first)",message="first is of from: Ordinal"
type NodeIDs struct {
	// From is Annotation (weir-lb.github.io/node-ids of the Pod: numbers separated by commas) or Ordinal (that of a Pod of a StatefulSet).
	//
	// +kubebuilder:validation:Enum=Annotation;Ordinal
	// +kubebuilder:default=Annotation
	From string `json:"from,omitempty"`
	// First is the node id of the Pod with ordinal 0.
	//
	// +kubebuilder:validation:Minimum=0
	First int32 `json:"first,omitempty"`
}

// Layout is where the node id is in a connection id: by bits, or quicLB.
//
// +kubebuilder:validation:XValidation:rule="has(self.quicLB) != (has(self.length) || has(self.owner))",message="a layout has length and owner, or quicLB"
// +kubebuilder:validation:XValidation:rule="has(self.length) == has(self.owner)",message="length and owner belong together"
// +kubebuilder:validation:XValidation:rule="!has(self.quicLB) || !has(self.rotation)",message="the rotation is a field of quicLB"
// +kubebuilder:validation:XValidation:rule="!has(self.length) || !has(self.owner) || (has(self.owner.offset) ? self.owner.offset : 0) + self.owner.bits <= 8 * self.length",message="the owner field ends after the connection id"
type Layout struct {
	// Length of a connection id, in bytes.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Length int32 `json:"length,omitempty"`
	// Owner is where the node id is.
	Owner *Bits `json:"owner,omitempty"`
	// Rotation is the field that distinguishes several layouts.
	Rotation *Rotation `json:"rotation,omitempty"`
	// QUICLB is the plaintext layout of draft-ietf-quic-load-balancers.
	QUICLB *QUICLB `json:"quicLB,omitempty"`
}

// Bits is a field of a connection id.
type Bits struct {
	// Offset from the first bit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2039
	Offset int32 `json:"offset,omitempty"`
	// Bits is the width.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	Bits int32 `json:"bits"`
}

// Rotation is the field that distinguishes layouts.
type Rotation struct {
	// Offset from the first bit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2039
	Offset int32 `json:"offset,omitempty"`
	// Bits is the width.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Bits int32 `json:"bits"`
	// Value in connection ids of this layout.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Value int32 `json:"value,omitempty"`
}

// QUICLB is the plaintext layout of draft-ietf-quic-load-balancers.
//
// +kubebuilder:validation:XValidation:rule="self.serverIDLength + self.nonceLength <= 19",message="server id and nonce have at most 19 bytes together"
type QUICLB struct {
	// Rotation is the configuration rotation.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=6
	Rotation int32 `json:"rotation,omitempty"`
	// ServerIDLength is the length of the server id, in bytes.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	ServerIDLength int32 `json:"serverIDLength"`
	// NonceLength is the length of the nonce, in bytes.
	//
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=18
	NonceLength int32 `json:"nonceLength"`
}

// Duration is a number with its unit, such as 30s or 2h.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
type Duration string

// Timeout is a Duration, or never.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^(never|([0-9]{1,5}(h|m|s|ms)){1,4})$`
type Timeout string

// Timeouts are idle times of flows, from 1s.
type Timeouts struct {
	// UDP flows; absent means 2m.
	UDP Timeout `json:"udp,omitempty"`
	// TCPOpening is of TCP handshakes; absent means 30s.
	TCPOpening Timeout `json:"tcpOpening,omitempty"`
	// TCPEstablished is of established TCP connections; absent means 2h4m.
	TCPEstablished Timeout `json:"tcpEstablished,omitempty"`
	// TCPClosing is of TCP connections after a FIN or RST; absent means 30s.
	TCPClosing Timeout `json:"tcpClosing,omitempty"`
	// SCTP associations; absent means 10m.
	SCTP Timeout `json:"sctp,omitempty"`
}

// Health is an active probe of every endpoint.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'http' || !has(self.path) && !has(self.host) && !has(self.status)",message="path, host and status are of type http"
// +kubebuilder:validation:XValidation:rule="self.type == 'udp' || !has(self.send)",message="send is of type udp"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || duration(self.timeout) < duration(has(self.interval) ? self.interval : '2s')",message="the timeout is shorter than the interval"
type Health struct {
	// Type is what is sent.
	//
	// +kubebuilder:validation:Enum=tcp;udp;http;coap_ping;stun_binding
	Type string `json:"type"`
	// Port to probe; absent means the endpoint's.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Interval is the time between two probes, 100ms to 1h; absent means 2s.
	Interval Duration `json:"interval,omitempty"`
	// Timeout is the time until a probe has failed; absent means 1s, or half the interval.
	Timeout Duration `json:"timeout,omitempty"`
	// Rise is how many successes in a row make an endpoint up; absent means 2.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise int32 `json:"rise,omitempty"`
	// Fall is how many failures in a row make an endpoint down; absent means 3.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall int32 `json:"fall,omitempty"`
	// Path of the HTTP request.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path,omitempty"`
	// Host header of the HTTP request.
	//
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`
	// Status that the HTTP answer must have; absent means 200 to 399.
	//
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=599
	Status int32 `json:"status,omitempty"`
	// Send is the payload of the UDP probe.
	//
	// +kubebuilder:validation:MaxLength=512
	Send string `json:"send,omitempty"`
	// FailOpen: if no endpoint is left, the probes are ignored; absent means true.
	FailOpen *bool `json:"failOpen,omitempty"`
}

// LoadBalancerPolicyStatus is what became of a LoadBalancerPolicy. Each entry of ancestors is one target.
type LoadBalancerPolicyStatus struct {
	gatewayv1.PolicyStatus `json:",inline"`

	// InForce are the last settings that were accepted. They stay in force while those of the spec are not.
	InForce *InForce `json:"inForce,omitempty"`
}

// InForce are settings of an earlier or the present generation.
type InForce struct {
	// Generation of the policy that had them.
	Generation int64 `json:"generation"`

	Settings `json:",inline"`
}
