package operator

import "github.com/weir-lb/weir/internal/cli"

// Family is weir operator.
func Family() cli.Family { return cli.Family{Command: newOperatorCommand, Values: values} }

func values() map[string][]string {
	return map[string][]string{"--controllers": {"l4", "turn"}, "--balancer": {"unix:/run/weir/lb.sock", "127.0.0.1:9180"}}
}
