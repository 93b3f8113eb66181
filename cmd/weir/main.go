// Command weir steers and measures layer-4 traffic.
//
// The commands are below internal/cli, a package for each family. This folder ties them together, and tests what is true of all of them.
package main

import (
	"os"
	"path/filepath"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/bench"
	"github.com/weir-lb/weir/internal/cli/check"
	"github.com/weir-lb/weir/internal/cli/coap"
	"github.com/weir-lb/weir/internal/cli/demo"
	"github.com/weir-lb/weir/internal/cli/doctor"
	"github.com/weir-lb/weir/internal/cli/explain"
	"github.com/weir-lb/weir/internal/cli/initialize"
	"github.com/weir-lb/weir/internal/cli/lab"
	"github.com/weir-lb/weir/internal/cli/lb"
	"github.com/weir-lb/weir/internal/cli/nat"
	"github.com/weir-lb/weir/internal/cli/operator"
	"github.com/weir-lb/weir/internal/cli/sim"
	"github.com/weir-lb/weir/internal/cli/snat"
	"github.com/weir-lb/weir/internal/cli/tcp"
	"github.com/weir-lb/weir/internal/cli/turn"
)

func main() {
	hangups := cli.CatchHangups()
	os.Exit(cli.Run(hangups, arguments(os.Args), families()))
}

// arguments are the arguments of the command line. Under the name stunnerd, or with it as the first argument, weir is the gateway with
// stunnerd's options.
func arguments(line []string) []string {
	switch {
	case filepath.Base(line[0]) == "stunnerd":
		return append([]string{"turn", "stunnerd"}, line[1:]...)
	case len(line) > 1 && line[1] == "stunnerd":
		return append([]string{"turn"}, line[1:]...)
	}
	return line[1:]
}

// families are the commands. A new family is a package and one line here.
func families() []cli.Family {
	return []cli.Family{
		bench.Family(),
		nat.Family(),
		lb.Family(),
		initialize.Family(),
		check.Family(),
		explain.Family(),
		lab.Family(),
		coap.Family(),
		demo.Family(),
		sim.Family(),
		snat.Family(),
		doctor.Family(),
		turn.Family(),
		tcp.Family(),
		operator.Family(),
	}
}
