package coap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// repeatEarly is a first retransmission that comes early, and late enough for the client not to conclude that its session is lost, after 2.5 times as long.
const repeatEarly = 2 * time.Second

// servedBy returns the number of the process that serves, and 0 while there is none.
func servedBy(p *clitest.Process) int {
	var status node.Status
	if p.Admin.Get(p.T.Context(), "/status", nil, &status) != nil {
		return 0
	}
	return status.PID
}

// The serving process of a node is killed, upgraded, and ended and started again, under load: the next one goes on with its sessions, and the buddy notices nothing.
func TestClusterGoesOnAfterARestart(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	const clients = 20
	addresses := clitest.FreeAddresses(t, 4)
	store := startEtcd(t)
	args := []string{"--dtls-cluster-replicate", store, "--state", filepath.Join(t.TempDir(), "state")}
	first := securedNode(t, addresses, 0, args...)
	buddy := securedNode(t, addresses, 1, "--no-supervisor", "--dtls-cluster-replicate", store)
	awaitNodesUp(first)
	awaitNodesUp(buddy)
	l := startWorkload(t, addresses[0], clients, repeatEarly)
	l.goOn(3)
	before := awaitCopies(first, clients)
	becomes := func(pid int) {
		t.Helper()
		netlabtest.Eventually(t, "another process serves", func() bool { now := servedBy(first); return now != 0 && now != pid })
	}
	for what, happens := range map[string]func(){
		"kill -9": func() {
			pid := servedBy(first)
			clitest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
			becomes(pid)
		},
		"upgrade": func() {
			pid := servedBy(first)
			clitest.Must(t, first.Cmd.Process.Signal(syscall.SIGUSR2))
			becomes(pid)
		},
		"restart": func() {
			clitest.Must(t, first.Cmd.Process.Signal(syscall.SIGTERM))
			<-first.Ended
			first = securedNode(t, addresses, 0, args...)
		},
	} {
		l.longest.Store(0)
		happens()
		l.goOn(3)
		after := awaitCopies(first, clients)
		engine := nodeStatus(first).Engine
		if after.Inherited != clients || after.Process != before.Process || engine.Restored != clients || engine.RestoreLost+engine.Handshakes+engine.LeaseSpent+engine.BadMACs > 0 {
			t.Errorf("%s: %+v, %+v", what, after, engine)
		}
		t.Logf("%s: the longest wait is %v", what, time.Duration(l.longest.Load()))
	}
	l.end()
	if s := copies(buddy); s.TakenOver+s.TakeOvers > 0 {
		t.Errorf("the buddy has taken over: %+v", s)
	}
}

// A process that was taken over while it did not run drops what is in memory.
func TestClusterDropsWhatItsBuddyHas(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	const clients = 10
	addresses := clitest.FreeAddresses(t, 4)
	store := startEtcd(t)
	args := []string{"--dtls-cluster-replicate", store, "--state", filepath.Join(t.TempDir(), "state")}
	first := securedNode(t, addresses, 0, args...)
	buddy := securedNode(t, addresses, 1, "--no-supervisor", "--dtls-cluster-replicate", store)
	awaitNodesUp(first)
	awaitNodesUp(buddy)
	l := startWorkload(t, addresses[0], clients, repeatLate)
	l.goOn(3)
	before := awaitCopies(first, clients)
	clitest.Must(t, first.Cmd.Process.Signal(syscall.SIGTERM))
	<-first.Ended
	for i := range clients {
		l.steer(i, addresses[2])
	}
	netlabtest.Eventually(t, "the buddy has the sessions", func() bool { return copies(buddy).TakenOver == clients })
	first = securedNode(t, addresses, 0, args...)
	l.goOn(3)
	netlabtest.Eventually(t, "the sessions return", func() bool { return moves(first).Sessions == clients })
	l.goOn(3)
	after := awaitCopies(first, clients)
	l.end()
	if after.Inherited != 0 || after.Process == before.Process || nodeStatus(first).Engine.Handshakes > 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// The store has TLS and client certificates, fails under load and comes back; then the buddy crashes, and then the node itself: no handshake.
func TestClusterStoreOutage(t *testing.T) {
	clitest.TakesSeconds(t)
	const clients = 10
	pki := newPKI(t)
	url := strings.Replace(freeURL(t), "http:", "https:", 1)
	store := newEtcd(t, url, "--cert-file", pki.file("server.pem"), "--key-file", pki.file("server.key"), "--client-cert-auth", "--trusted-ca-file", pki.file("ca.pem"))
	store.start()
	addresses := clitest.FreeAddresses(t, 6)
	r := &replicated{addresses: addresses}
	for i := range 3 {
		r.nodes = append(r.nodes, clitest.Start(t, "node", "coap", "server", "--no-supervisor", "--workers", "1", "-c", pki.config(addresses, i, url)))
	}
	for _, p := range r.nodes {
		awaitNodesUp(p)
	}
	l := startWorkload(t, addresses[0], clients, repeatLate)
	l.goOn(3)
	buddy := *awaitCopies(r.nodes[0], clients).Buddy

	store.stop()
	netlabtest.Eventually(t, "the node notices that the store is away", func() bool { return copies(r.nodes[0]).StoreError != "" })
	l.goOn(3)
	crashed := r.nodes[buddy-1]
	clitest.Must(t, crashed.Cmd.Process.Kill())
	<-crashed.Ended
	store.start()
	netlabtest.Eventually(t, "the other node is the buddy", func() bool {
		s := copies(r.nodes[0])
		return s.StoreError == "" && s.Buddy != nil && *s.Buddy != buddy && s.Behind == 0 && s.Sessions == clients
	})
	l.goOn(3)
	if s := copies(r.nodes[0]); s.Fenced > 0 {
		t.Errorf("%+v", s)
	}

	clitest.Must(t, r.nodes[0].Cmd.Process.Kill())
	last := 5 - int(buddy) // nodes 2 and 3
	for i := range clients {
		l.steer(i, addresses[2*(last-1)])
	}
	l.goOn(3)
	l.end()
	if s := nodeStatus(r.nodes[last-1]); s.Copies.TakenOver != clients || s.Engine.Handshakes > 0 {
		t.Errorf("%+v, %d handshakes", *s.Copies, s.Engine.Handshakes)
	}
}

// pki is a directory with an authority, and a server and a client that it has certified.
type pki struct {
	t   *testing.T
	dir string
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{t, t.TempDir()}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key := p.certify("ca", authority, authority, nil)
	p.certify("server", &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "etcd"}, NotAfter: authority.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // it is a client of itself
	}, authority, key)
	p.certify("client", &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "node"}, NotAfter: authority.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, key)
	return p
}

// config is the configuration of a node that knows the store's authority, and is known to it.
func (p *pki) config(addresses []string, own int, store string) string {
	p.t.Helper()
	nodes := ""
	for i := 0; i < len(addresses); i += 2 {
		public := addresses[i]
		if i != 2*own {
			public = "---"
		}
		nodes += fmt.Sprintf("  - {id: %d, dtls: %q, management: %q}\n", i/2+1, public, addresses[i+1])
	}
	clitest.Must(p.t, os.WriteFile(p.file("secret"), []byte("c2VjcmV0IG9mIHRoZSB0ZXN0cw=="), 0o600))
	text := fmt.Sprintf("cluster:\n  nodes:\n%s  security: {file: %s}\n  replicate: {etcd: [%q], ca: %s, certificate: %s, private_key: %s}\n",
		nodes, p.file("secret"), store, p.file("ca.pem"), p.file("client.pem"), p.file("client.key"))
	path := p.file(fmt.Sprintf("node%d.yaml", own+1))
	clitest.Must(p.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// certify writes a key and a certificate; signer nil: by its own key.
func (p *pki) certify(name string, what, by *x509.Certificate, signer *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	clitest.Must(p.t, err)
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, what, by, &key.PublicKey, signer)
	clitest.Must(p.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	clitest.Must(p.t, err)
	clitest.Must(p.t, os.WriteFile(p.file(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	clitest.Must(p.t, os.WriteFile(p.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return key
}
