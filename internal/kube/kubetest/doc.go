// Package kubetest runs the Kubernetes API of package kubelab for the length of a test.
package kubetest
