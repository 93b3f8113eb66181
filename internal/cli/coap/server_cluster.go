package coap

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/node"
)

// Environment variables of the secret between nodes, those of Californium.
const (
	identityVariable = "DTLS_CID_MGMT_IDENTITY"
	secretVariable   = "DTLS_CID_MGMT_SECRET_BASE64"
)

// Environment variables of the etcd cluster in which nodes agree.
const (
	etcdUserVariable     = "WEIR_ETCD_USERNAME"
	etcdPasswordVariable = "WEIR_ETCD_PASSWORD"
)

// clusterFlags say which nodes the cluster has, and with which secret.
type clusterFlags struct {
	nodes      []string
	group      []string
	secret     string
	kubernetes string
	replicate  []string
	pods       *podCluster // of kubernetes, once applied; nil: the nodes are not Pods
}

func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.nodes, "dtls-cluster", nil, "nodes of the cluster, DTLS;MANAGEMENT;ID,...; may be repeated")
	flags.StringSliceVar(&f.group, "dtls-cluster-group", nil, "management addresses at which further nodes of the cluster are searched for, HOST:PORT,...")
	flags.StringVar(&f.kubernetes, "k8s-dtls-cluster", "", "the nodes are Pods of Kubernetes, this one has the number of its Pod's name: DTLS;MANAGEMENT;MANAGEMENT-PORT-OF-THE-OTHERS, such as :5784;:5884;5884")
	flags.StringSliceVar(&f.replicate, "dtls-cluster-replicate", nil, "copy sessions to another node, which goes on with them when this one crashes; the nodes agree among themselves (embedded:DIRECTORY), in Leases of Kubernetes (kubernetes, or kubernetes:CLUSTER), or in this etcd cluster, http://HOST:PORT,... (https as well), whose user and password are in the environment variables "+etcdUserVariable+" and "+etcdPasswordVariable)
	flags.StringVar(&f.secret, "dtls-cluster-group-security", "", "secret that secures the link between nodes, the same on all; every user of this host can read it here, unlike the environment variables "+identityVariable+" and "+secretVariable)
}

// apply enters the flags that were given, and the environment variables.
func (f *clusterFlags) apply(cfg *node.Config, given func(string) bool) error {
	if len(f.nodes) > 0 {
		nodes, err := cluster.ParseNodes(strings.Join(f.nodes, ","))
		if err != nil {
			return fmt.Errorf("--dtls-cluster: %w", err)
		}
		if cfg.Cluster == nil {
			cfg.Cluster = new(cluster.Config)
		}
		cfg.Cluster.Nodes = nodes
	}
	if given("k8s-dtls-cluster") {
		if given("dtls-cluster") || given("dtls-cluster-group") || cfg.Cluster != nil {
			return errors.New("--k8s-dtls-cluster: the nodes are Pods; remove --dtls-cluster, --dtls-cluster-group and cluster: of the file")
		}
		var err error
		if f.pods, err = newPodCluster(f.kubernetes); err != nil {
			return fmt.Errorf("--k8s-dtls-cluster: %w", err)
		}
		cfg.Cluster = f.pods.config()
	}
	for _, name := range []string{"dtls-cluster-replicate", "dtls-cluster-group", "dtls-cluster-group-security"} {
		if given(name) && cfg.Cluster == nil {
			return fmt.Errorf("--%s: there is no cluster; add --dtls-cluster with this node", name)
		}
	}
	if cfg.Cluster == nil {
		return nil
	}
	if given("dtls-cluster-group") {
		cfg.Cluster.Group = f.group
	}
	if given("dtls-cluster-replicate") {
		if err := f.applyReplicate(cfg.Cluster); err != nil {
			return fmt.Errorf("--dtls-cluster-replicate: %w", err)
		}
	}
	if err := environmentEtcd(cfg.Cluster.Replicate); err != nil {
		return err
	}
	switch {
	case given("dtls-cluster-group-security") && f.secret == "":
		return errors.New("--dtls-cluster-group-security: the secret is empty; make one with: head -c 16 /dev/urandom | base64")
	case given("dtls-cluster-group-security"):
		cfg.Cluster.Security = &cluster.Security{Identity: cluster.DefaultIdentity, Secret: []byte(f.secret)}
	case cfg.Cluster.Security == nil:
		return environmentSecurity(cfg.Cluster)
	}
	return nil
}

// Values of --dtls-cluster-replicate besides the servers of etcd.
const (
	inKubernetes = "kubernetes" // Leases; the name of the cluster may follow behind a colon
	inNodes      = "embedded"   // the nodes themselves; a directory follows behind a colon
)

// applyReplicate says where the nodes agree on who has which sessions.
func (f *clusterFlags) applyReplicate(cfg *cluster.Config) error {
	if cfg.Replicate == nil {
		cfg.Replicate = new(cluster.Replicate)
	}
	word, name, _ := strings.Cut(f.replicate[0], ":")
	switch {
	case len(f.replicate) == 1 && word == inNodes:
		if cfg.Replicate.Embedded = name; name == "" {
			return errors.New("embedded: write embedded:DIRECTORY, where this node keeps its part of the store")
		}
		return nil
	case len(f.replicate) > 1 || word != inKubernetes:
		cfg.Replicate.Etcd = f.replicate
		return nil
	}
	if f.pods == nil {
		return errors.New("kubernetes: the nodes are no Pods; add --k8s-dtls-cluster, or name the servers of an etcd cluster, such as http://192.0.2.1:2379")
	}
	var err error
	cfg.Replicate.Store, err = f.pods.leases(name)
	return err
}

// environmentEtcd takes user and password of etcd from the environment, if they are there.
func environmentEtcd(r *cluster.Replicate) error {
	if r == nil {
		return nil
	}
	if r.Username, r.Password = os.Getenv(etcdUserVariable), os.Getenv(etcdPasswordVariable); (r.Username == "") != (r.Password == "") {
		return fmt.Errorf("of %s and %s one is set; set both or none", etcdUserVariable, etcdPasswordVariable)
	}
	return nil
}

// environmentSecurity takes identity and secret from the environment, if they are there.
func environmentSecurity(cfg *cluster.Config) error {
	identity, text := os.Getenv(identityVariable), os.Getenv(secretVariable)
	switch {
	case identity == "" && text == "":
		return nil
	case text == "":
		return fmt.Errorf("%s is set, but %s is not; set both or none", identityVariable, secretVariable)
	case identity == "":
		return fmt.Errorf("%s is set, but %s is not; set both or none", secretVariable, identityVariable)
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(secret) == 0 {
		return fmt.Errorf("%s is no base64; make a secret with: head -c 16 /dev/urandom | base64", secretVariable)
	}
	cfg.Security = &cluster.Security{Identity: identity, Secret: secret}
	return nil
}

// clusterSwitches takes Californium's switches of the cluster.
func clusterSwitches(cfg *node.Config, c *californiumOptions) error {
	for _, s := range []struct{ name, given string }{{"dtls-cluster-backward", "--no-dtls-cluster-backward"}, {"dtls-cluster-mac", "--dtls-cluster-mac"}} {
		on := c.on(s.name)
		switch {
		case on == nil:
		case cfg.Cluster == nil:
			return fmt.Errorf("%s: there is no cluster; add --dtls-cluster", s.given)
		case s.name == "dtls-cluster-mac":
			cfg.Cluster.MAC = on
		default:
			cfg.Cluster.Backward = on
		}
	}
	return nil
}
