// Package conformance is the Gateway API's official conformance suite, as a test binary, and the programs of its Pods.
//
// It is a module of its own, so that Weir's has none of the suite's modules. `make conformance` builds it once, and runs it in a
// laboratory of namespaces: docs/kubernetes-conformance.md.
package conformance

import (
	_ "sigs.k8s.io/gateway-api/conformance" // the module, whose manifests the laboratory reads
)
