package kubedemo

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// slots is how many Pods have an address of their own: the operator, three CoAP nodes, a TURN gateway and the one that replaces it.
const slots = 6

// cluster is a Kubernetes with the operator, the load balancer and the example.
type cluster struct {
	cfg     Config
	dir     *scratch.Dir
	lab     *netlab.Lab
	plane   *kubelab.ControlPlane
	kubelet *kubelab.Kubelet
	pins    string
	client  *netlab.Host // on the Pods' segment: the media server
	remote  *netlab.Host // of the clients
}

// newCluster starts the control plane. What has been started is in the cluster also on error, for close.
func newCluster(ctx context.Context, cfg Config) (c *cluster, err error) {
	c = &cluster{cfg: cfg}
	if c.dir, err = scratch.New(); err != nil {
		return c, err
	}
	if c.lab, err = netlab.Up(kubelab.Topology("kubedemo", slots)); err != nil {
		return c, err
	}
	c.client, c.remote = c.lab.Namespace("client"), c.lab.Namespace("remote")
	if c.pins, err = pinDirectory(); err != nil {
		return c, err
	}
	files := filepath.Join(c.dir.Path, "kube")
	if err := os.Mkdir(files, 0o700); err != nil {
		return c, err
	}
	c.plane, err = kubelab.Start(ctx, kubelab.Options{
		Host: c.lab.Namespace("node"), Address: netip.MustParseAddr(kubelab.NodeAddress), Files: files, Log: func(string, ...any) {}, // what fails is tried again
	})
	return c, err
}

// pinDirectory is a directory of the machine's bpf file system, which is mounted if it is not.
func pinDirectory() (string, error) {
	if err := programs.SweepPins(); err != nil {
		return "", err
	}
	path := programs.PinPath("kube")
	err := os.MkdirAll(path, 0o700)
	if err != nil {
		if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
			return "", fmt.Errorf("mount /sys/fs/bpf: %w", err)
		}
		err = os.MkdirAll(path, 0o700)
	}
	return path, err
}

// close ends everything that newCluster has started.
func (c *cluster) close() error {
	var errs []error
	if c.kubelet != nil {
		c.kubelet.Stop()
	}
	if c.plane != nil {
		c.plane.Stop()
	}
	if c.lab != nil {
		errs = append(errs, c.lab.Down())
	}
	if c.pins != "" {
		errs = append(errs, os.RemoveAll(c.pins))
	}
	if c.dir != nil {
		errs = append(errs, c.dir.Remove())
	}
	return errors.Join(errs...)
}

// install applies CRDs, charts and the example, and starts the node.
func (c *cluster) install(ctx context.Context) error {
	if err := c.plane.GatewayAPI(); err != nil {
		return err
	}
	crds, err := filepath.Glob(filepath.Join(c.cfg.Root, "deploy/operator/crds/*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range crds {
		if err := c.plane.CRDFile(file); err != nil {
			return err
		}
	}
	image, err := c.image()
	if err != nil {
		return err
	}
	if err := c.secrets(); err != nil {
		return err
	}
	state := filepath.Join(c.dir.Path, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return err
	}
	if err := c.chart(ctx, "operator", "weir", "weir-system", "kube-demo-values.yaml"); err != nil {
		return err
	}
	if c.kubelet, err = c.plane.StartKubelet(kubelab.KubeletOptions{
		Image: image, Slots: kubelab.Slots(c.lab, slots), HostPaths: map[string]string{"/sys/fs/bpf": c.pins, "/var/lib/weir": state},
	}); err != nil {
		return err
	}
	if err := c.await(ctx, "the operator is ready", func() bool { return c.rolled("weir-system", "deployments", "weir") }); err != nil {
		return err
	}
	if err := c.chart(ctx, "coap", "coap", "coap", "kube-demo-coap-values.yaml"); err != nil {
		return err
	}
	example, err := os.ReadFile(filepath.Join(c.cfg.Root, "deploy/examples/kube-demo.yaml"))
	if err != nil {
		return err
	}
	return c.plane.Apply("", example, false)
}

// image is the root directory of Pods: what make image puts into one.
func (c *cluster) image() (string, error) {
	root := filepath.Join(c.dir.Path, "image")
	for _, directory := range []string{"usr/bin", "run", "tmp", "etc/weir", "var", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
			return "", err
		}
	}
	text, err := os.ReadFile(c.cfg.Weir)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/weir"), text, 0o755); err != nil {
		return "", err
	}
	return root, os.Symlink("weir", filepath.Join(root, "usr/bin/stunnerd"))
}

// secrets makes the namespaces, and the Secrets that the values name.
func (c *cluster) secrets() error {
	tls, err := kubelab.TLSSecret("l4-tls", &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(kubelab.FirstPod)}, IsCA: true, BasicConstraintsValid: true})
	if err != nil {
		return err
	}
	random := base64.StdEncoding.EncodeToString([]byte(rand.Text()))
	all := map[string]string{
		"weir-system": tls + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: l4-token}\nstringData: {token: " + random + "}\n",
		"coap":        "apiVersion: v1\nkind: Secret\nmetadata: {name: coap-cluster}\nstringData: {identity: demo, secret: " + random + "}\n",
		"media":       "",
	}
	for namespace, text := range all {
		if err := c.plane.Apply("", fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace), false); err != nil {
			return err
		}
		if err := c.plane.Apply(namespace, []byte(text), false); err != nil {
			return err
		}
	}
	return nil
}

// chart renders a chart and applies it.
func (c *cluster) chart(ctx context.Context, name, release, namespace, values string) error {
	directory := filepath.Join(c.cfg.Root, "deploy")
	cmd := exec.CommandContext(ctx, c.cfg.Deploy, "render", "-chart", filepath.Join(directory, name), "-values", filepath.Join(directory, "examples", values), "-name", release, "-namespace", namespace)
	var problems strings.Builder
	cmd.Stderr = &problems
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("render the chart %s: %w: %s", name, err, &problems)
	}
	return c.plane.Apply(namespace, text, false)
}

// within is how long anything may take.
const within = 90 * time.Second

// await waits until is returns true. what completes the sentence "did not happen: …".
func (c *cluster) await(ctx context.Context, what string, is func() bool) error {
	for end := time.Now().Add(within); !is(); {
		if time.Now().After(end) {
			return fmt.Errorf("did not happen within %v: %s", within, what)
		}
		if err := programs.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
