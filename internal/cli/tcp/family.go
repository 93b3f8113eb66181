package tcp

import (
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
)

// Family is weir tcp.
func Family() cli.Family {
	return cli.Family{Command: newTCPCommand, Values: tcpValues}
}

func tcpValues() map[string][]string {
	return map[string][]string{
		"--close":                   {"fin", "rst"},
		"--end":                     {"both", "client", "server"},
		"weir tcp client --workers": {"auto"},
		"weir tcp server --workers": {"auto"},
		"weir tcp bench --workers":  {"auto"},
		"--server-workers":          {"auto"},
		"--via":                     scalebench.DescribePaths(),
		"weir tcp bench --with":     scalebench.PeerNames(),
	}
}
