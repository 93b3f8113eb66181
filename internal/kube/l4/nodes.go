package l4

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/world"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const (
	// NodesAnnotation has the node ids of a Pod, separated by commas.
	NodesAnnotation = "weir-lb.github.io/node-ids"
	// ordinalLabel is set by the controller of StatefulSets.
	ordinalLabel = "apps.kubernetes.io/pod-index"
	fromOrdinal  = "Ordinal"
)

// podKind follows what Pods say about node ids, once a policy reads it.
func podKind() operator.Kind {
	pod, list := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
	pod.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "PodList"})
	return operator.Kind{Object: pod, List: list, Needed: readsPods, Reduce: reducePod}
}

func readsPods(objects []client.Object) bool {
	return slices.ContainsFunc(objects, func(o client.Object) bool {
		p, ok := o.(*policyv1alpha1.LoadBalancerPolicy)
		return ok && (p.Spec.CID != nil || p.Status.InForce != nil && p.Status.InForce.CID != nil)
	})
}

// reducePod keeps what nodeIDs reads.
func reducePod(object client.Object) {
	labels, annotations := map[string]string{}, map[string]string{}
	if ordinal, ok := object.GetLabels()[ordinalLabel]; ok {
		labels[ordinalLabel] = ordinal
	}
	if ids, ok := object.GetAnnotations()[NodesAnnotation]; ok {
		annotations[NodesAnnotation] = ids
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	object.SetOwnerReferences(nil)
	object.SetFinalizers(nil)
}

// nodesOf are the node ids of an endpoint in a place. What is wrong with them is noted.
func (t *translation) nodesOf(p *place, e *endpoint) []uint32 {
	if p.settings == nil || p.settings.CID == nil || e.pod == "" {
		return nil
	}
	from := p.settings.CID.NodeIDs
	if from == nil {
		from = &policyv1alpha1.NodeIDs{}
	}
	pod, ok := world.Get[*metav1.PartialObjectMetadata](t.world, e.namespace, e.pod)
	if !ok {
		return nil // it comes with the next render
	}
	ids, err := nodeIDs(pod, from)
	if err != nil {
		p.policy.badNode(fmt.Sprintf("Pod %s/%s: %v", e.namespace, e.pod, err))
		return nil
	}
	limit := t.compile(p.settings, p.protocol).maxNode
	return slices.DeleteFunc(ids, func(id uint32) bool {
		if id > limit {
			p.policy.badNode(fmt.Sprintf("Pod %s/%s: node id %d is greater than %d, which the layout can carry", e.namespace, e.pod, id, limit))
		}
		return id > limit
	})
}

// nodeIDs reads the node ids of a Pod.
func nodeIDs(pod client.Object, from *policyv1alpha1.NodeIDs) (ids []uint32, err error) {
	if from.From == fromOrdinal {
		text, ok := pod.GetLabels()[ordinalLabel]
		ordinal, err := strconv.ParseUint(text, 10, 31)
		if !ok || err != nil {
			return nil, fmt.Errorf("it has no label %s with an ordinal; run it by a StatefulSet, or write nodeIDs.from: Annotation", ordinalLabel)
		}
		return []uint32{uint32(ordinal) + uint32(from.First)}, nil
	}
	text, ok := pod.GetAnnotations()[NodesAnnotation]
	if !ok {
		return nil, fmt.Errorf("it has no annotation %s; write its node ids there, such as \"7\"", NodesAnnotation)
	}
	seen := map[uint32]bool{}
	for part := range strings.SplitSeq(text, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %.40q is no node id; write numbers separated by commas", NodesAnnotation, part)
		}
		seen[uint32(id)] = true
	}
	if len(seen) > lb.MaxNodes {
		return nil, fmt.Errorf("annotation %s: %d node ids, at most %d", NodesAnnotation, len(seen), lb.MaxNodes)
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// distinctNodes leaves each node id to one backend: to one that takes new flows before one that does not, then to the first by name.
func (t *translation) distinctNodes(p *place, all []backendDocument) {
	order := make([]*backendDocument, 0, len(all))
	for i := range all {
		if len(all[i].Nodes) > 0 {
			order = append(order, &all[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *backendDocument) int {
		if takesA, takesB := a.Weight > 0, b.Weight > 0; takesA != takesB {
			if takesA {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	owners := map[uint32]string{}
	for _, b := range order {
		b.Nodes = slices.DeleteFunc(b.Nodes, func(id uint32) bool {
			other, taken := owners[id]
			if taken {
				p.policy.badNode(fmt.Sprintf("%s: node id %d of %s is that of %s, too; give each Pod its own", p.title, id, b.Name, other))
				return true
			}
			owners[id] = b.Name
			return false
		})
	}
}

func (p *policy) badNode(text string) {
	if !slices.Contains(p.badNodes, text) {
		p.badNodes = append(p.badNodes, text)
	}
}
