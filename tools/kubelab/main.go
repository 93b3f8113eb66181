// Command kubelab is the control plane of Kubernetes that tests run: etcd, kube-apiserver and kube-controller-manager in one
// program, which is the component that its name says. One program shares its packages among the three: a third of their size.
//
// It is a module of its own, so that Weir's has none of Kubernetes' server modules. `make kubelab` builds it with its links.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the log format json, as in the components' own programs
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the same for their metrics
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	var command *cobra.Command
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllers.NewControllerManagerCommand()
	default:
		fmt.Fprintf(os.Stderr, "kubelab: %s is no component; call it through a link named etcd, kube-apiserver or kube-controller-manager\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
