// Package operator is weir operator: Weir's data planes as a Kubernetes cluster's own.
package operator
