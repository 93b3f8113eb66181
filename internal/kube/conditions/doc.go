// Package conditions writes the conditions of statuses as the conventions of Kubernetes' API want them: one of each type, with the
// generation that was observed, and a time that changes with the condition's status alone.
package conditions
