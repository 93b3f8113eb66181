package store

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/kube/leases"
	"github.com/weir-lb/weir/internal/kube/pods"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// tested is what all stores do.
type tested interface {
	Change(ctx context.Context, c replica.Change) (replica.Entry, error)
	Follow(ctx context.Context, entry func(replica.Entry)) error
	Delete(ctx context.Context, owner replica.Process, term uint64) error
	Close() error
}

func TestMemory(t *testing.T) { conforms(t, new(Memory)) }

func TestEtcd(t *testing.T) {
	program := filepath.Join(kubetest.Directory(), "etcd")
	netlabtest.Tools(t, program)
	clients, peers := "http://"+clitest.FreeTCP(t).String(), "http://"+clitest.FreeTCP(t).String()
	cmd := exec.Command(program, "--data-dir", filepath.Join(t.TempDir(), "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "error")
	if err := clitest.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s, err := OpenEtcd(EtcdConfig{Endpoints: []string{clients}, Prefix: "/weir/test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	netlabtest.Eventually(t, "etcd answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return s.Delete(ctx, replica.Process{Node: 9, Boot: 9}, 1) == nil
	})
	if _, err := s.client.Put(t.Context(), "/weir/test/no process", "foreign"); err != nil {
		t.Fatal(err)
	}
	conforms(t, s)
	t.Run("what is no entry is an error, and is not changed", func(t *testing.T) {
		owner := replica.Process{Node: 7, Boot: 7}
		for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"buddy":{"node":1,"boot":"x"}}`} {
			if _, err := s.client.Put(t.Context(), "/weir/test/"+name(owner), text); err != nil {
				t.Fatal(err)
			}
			if e, err := s.Change(t.Context(), replica.Change{Owner: owner, Taken: true}); err == nil {
				t.Errorf("%q is read as %+v", text, e)
			}
		}
	})
}

// kubernetes is what the nodes need in Kubernetes: a service account whose role permits what package leases does, and nothing else.
const kubernetes = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: node}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: node}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: node}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: node}
subjects: [{kind: ServiceAccount, name: node, namespace: default}]
`

// inside is set in the process that is in the namespace of the API server.
const inside = "WEIR_TEST_INSIDE"

func TestRootLeases(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	if os.Getenv(inside) != "" {
		leasesConform(t)
		return
	}
	lab := netlabtest.Up(t, netlab.Topology{Name: "leases", Namespaces: []netlab.Namespace{
		{Name: "control", Bridges: []netlab.Bridge{{Name: "pods", Addresses: netlab.Prefixes("10.77.255.1/16")}}},
	}})
	host := lab.Namespace("control")
	plane := kubetest.Start(t, host, netip.MustParseAddr("10.77.255.1"))
	clitest.Must(t, plane.Apply("default", []byte(kubernetes), false))
	token, err := plane.Token("default", "node")
	clitest.Must(t, err)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestRootLeases$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", "KUBECTL_HOST=https://"+plane.Address().String(), "KUBECTL_TOKEN="+token, "KUBECTL_TRUSTSTORE="+plane.CAFile(), "KUBECTL_NAMESPACE=default")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := host.Run(cmd); err != nil || !strings.Contains(out.String(), "--- PASS: TestRootLeases") {
		t.Errorf("%v\n%s", err, &out)
	}
	t.Logf("%s", &out)
}

func leasesConform(t *testing.T) {
	access, err := pods.FromEnvironment("coap-0", os.Getenv)
	clitest.Must(t, err)
	all, err := leases.Open(&access, "coap")
	clitest.Must(t, err)
	other, err := leases.Open(&access, "another")
	clitest.Must(t, err)
	if _, err := other.Change(t.Context(), "1-0000000000000001", 0, "of another cluster", "node 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Change(t.Context(), "no-process", 0, "foreign", "somebody"); err != nil {
		t.Fatal(err)
	}
	s := OpenLeases(all)
	conforms(t, s)
	t.Run("what is no entry is an error, and is not changed", func(t *testing.T) {
		owner := replica.Process{Node: 7, Boot: 7}
		revision := uint64(0)
		for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"buddy":{"node":1,"boot":"x"}}`} {
			l, err := all.Change(t.Context(), leaseName(owner), revision, text, "somebody")
			clitest.Must(t, err)
			revision = l.Revision
			if e, err := s.Change(t.Context(), replica.Change{Owner: owner, Taken: true}); err == nil {
				t.Errorf("%q is read as %+v", text, e)
			}
		}
	})
	began := time.Now()
	const changes = 100
	owner, term := replica.Process{Node: 8, Boot: 8}, uint64(0)
	for range changes {
		e, err := s.Change(t.Context(), replica.Change{Owner: owner, Term: term, Buddy: replica.Process{Node: 1, Boot: 1}})
		clitest.Must(t, err)
		if e.Term <= term {
			t.Fatalf("a change of term %d has made term %d", term, e.Term)
		}
		term = e.Term
	}
	t.Logf("a change takes %v", (time.Since(began) / changes).Round(10*time.Microsecond))
}

// conforms checks what package replica relies on.
func conforms(t *testing.T, s tested) {
	t.Helper()
	a, b, c := replica.Process{Node: 1, Boot: 1 << 63}, replica.Process{Node: 2, Boot: 2}, replica.Process{Node: 3, Boot: 3}
	change := func(c replica.Change) replica.Entry {
		t.Helper()
		e, err := s.Change(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := change(replica.Change{Owner: a, Buddy: b})
	if first.Term == 0 || first != (replica.Entry{Owner: a, Term: first.Term, Buddy: b}) {
		t.Fatalf("created: %+v", first)
	}
	if e := change(replica.Change{Owner: a, Buddy: c}); e != first {
		t.Errorf("created twice: %+v", e)
	}
	other := change(replica.Change{Owner: b, Buddy: a})
	if other.Term <= first.Term {
		t.Errorf("the term of a later change of another entry is %d, after %d", other.Term, first.Term)
	}
	ctx, cancel := context.WithCancel(t.Context())
	entries := make(chan replica.Entry, 64)
	ended := make(chan error, 1)
	go func() { ended <- s.Follow(ctx, func(e replica.Entry) { entries <- e }) }()
	for want := map[replica.Entry]bool{first: true, other: true}; len(want) > 0; {
		e := <-entries
		if !want[e] {
			t.Fatalf("read: %+v", e)
		}
		delete(want, e)
	}

	// Of two changes of one term, one succeeds; both are given the entry as it is.
	results := make([]replica.Entry, 8)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			request := replica.Change{Owner: a, Term: first.Term, Taken: true, By: b}
			if i%2 == 0 {
				request = replica.Change{Owner: a, Term: first.Term, Buddy: c}
			}
			results[i] = change(request)
		})
	}
	group.Wait()
	next := <-entries
	if next.Term <= other.Term || next.Owner != a {
		t.Errorf("changed: %+v", next)
	}
	for _, e := range results {
		if e != next {
			t.Errorf("a change returned %+v, the entry is %+v", e, next)
		}
	}

	// A missing entry is taken by no process.
	if err := errors.Join(s.Delete(t.Context(), a, first.Term), s.Delete(t.Context(), a, next.Term)); err != nil {
		t.Fatal(err)
	}
	deleted := <-entries
	if !deleted.Taken || deleted.By != (replica.Process{}) || deleted.Owner != a || deleted.Term <= next.Term {
		t.Errorf("deleted: %+v", deleted)
	}
	if e := change(replica.Change{Owner: a, Term: next.Term, Buddy: b}); !e.Taken || e.By != (replica.Process{}) || e.Term <= next.Term {
		t.Errorf("changed after it was deleted: %+v", e)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of Follow: %v", err)
	}
	select {
	case e := <-entries:
		t.Errorf("too many changes: %+v", e)
	default:
	}
}

// FuzzDecode: entries come from a store that others may write to.
func FuzzDecode(f *testing.F) {
	for _, c := range []replica.Change{{}, {Buddy: replica.Process{Node: 1, Boot: 2}}, {Taken: true, By: replica.Process{Node: 255, Boot: 1<<64 - 1}}} {
		f.Add(encode(&c))
	}
	owner := replica.Process{Node: 4, Boot: 5}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := decode(owner, 6, text)
		if err != nil {
			return
		}
		again, err := decode(owner, 6, encode(&replica.Change{Buddy: e.Buddy, Taken: e.Taken, By: e.By}))
		if err != nil || again != e || e.Owner != owner || e.Term != 6 {
			t.Errorf("%q: %+v, then %+v, %v", text, e, again, err)
		}
	})
}
