// Package status shows what a running part answers: the loop of the commands that query one, as JSON or text, once or again and
// again ([View]), and the only writers of the public types of api/v1 as tables: services, balancers, counters with rates, flows
// and allocations.
package status
