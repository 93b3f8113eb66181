package embedded

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// member is one that runs.
type member struct {
	t       *testing.T
	cfg     Config
	server  *Server
	entries chan replica.Entry
	trouble chan error
	end     context.CancelFunc
	ended   chan struct{}
}

func configs(t *testing.T, n int) (all []Config) {
	t.Helper()
	var members []Member
	for i := range n {
		members = append(members, Member{uint32(i), clitest.FreeTCP(t).String()})
	}
	for i := range n {
		all = append(all, Config{
			Directory: t.TempDir(), Prefix: "/weir/test", Secret: []byte("sixteen bytes or more"), Node: uint32(i), Members: members,
			Listen: netip.MustParseAddrPort(members[i].Address), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}
	return all
}

// begin runs a member as the nodes do: Follow again and again.
func start(t *testing.T, cfg Config) *member {
	t.Helper()
	m := &member{t: t, cfg: cfg, server: Open(cfg), entries: make(chan replica.Entry, 256), trouble: make(chan error, 1), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	m.end = cancel
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := m.server.Follow(ctx, func(e replica.Entry) { m.entries <- e }); ctx.Err() == nil {
				select {
				case m.trouble <- err:
				default:
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond): // as the nodes, which wait longer
				}
			}
		}
	}()
	t.Cleanup(m.stop)
	return m
}

func (m *member) stop() {
	m.end()
	<-m.ended
	_ = m.server.Close()
}

// change repeats a change until the store answers.
func (m *member) change(c replica.Change) (e replica.Entry) {
	m.t.Helper()
	var err error
	netlabtest.Eventually(m.t, fmt.Sprintf("member %d changes an entry", m.cfg.Node), func() bool {
		ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Second)
		defer cancel()
		e, err = m.server.Change(ctx, c)
		return err == nil
	}, func() string { return fmt.Sprint(err) })
	return e
}

// Three members agree; two do when one is away, and it learns what it has missed; one alone changes nothing, and says so.
func TestMembers(t *testing.T) {
	clitest.TakesSeconds(t)
	all := configs(t, 3)
	var members []*member
	for _, cfg := range all {
		members = append(members, start(t, cfg))
	}
	owner, buddy, other := replica.Process{Node: 0, Boot: 10}, replica.Process{Node: 1, Boot: 11}, replica.Process{Node: 2, Boot: 12}
	first := members[0].change(replica.Change{Owner: owner, Buddy: buddy})
	for _, m := range members {
		if e := <-m.entries; e != first {
			t.Fatalf("member %d reads %+v, not %+v", m.cfg.Node, e, first)
		}
	}
	members[0].stop()
	second := members[1].change(replica.Change{Owner: owner, Term: first.Term, Taken: true, By: buddy})
	if second.By != buddy || second.Term <= first.Term {
		t.Errorf("with two of three: %+v", second)
	}
	members[0] = start(t, all[0])
	for e := range members[0].entries {
		if e == second {
			break
		}
	}
	if e := members[0].change(replica.Change{Owner: owner, Term: first.Term, Buddy: other}); e != second {
		t.Errorf("the member that was away changes it to %+v", e)
	}
	members[0].stop()
	members[1].stop()
	for {
		if err := <-members[2].trouble; strings.Contains(err.Error(), "majority") {
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if e, err := members[2].server.Change(ctx, replica.Change{Owner: other, Buddy: buddy}); err == nil {
		t.Errorf("one of three has made %+v", e)
	}

	// One that has lost what it agreed to may not agree again.
	members[1] = start(t, all[1])
	members[2].change(replica.Change{Owner: other, Buddy: buddy})
	lost := all[0]
	lost.Directory = t.TempDir()
	members[0] = start(t, lost)
	if err := <-members[0].trouble; !strings.Contains(err.Error(), "another prefix") {
		t.Errorf("a member with an empty directory: %v", err)
	}
}

// Members are those who know the secret: another certificate, or none, is refused before a byte of HTTP.
func TestStrangers(t *testing.T) {
	clitest.TakesSeconds(t)
	cfg := configs(t, 3)[0]
	start(t, cfg)
	try := func(secret string) error {
		directory := t.TempDir()
		info, err := writeCertificates(directory, []byte(secret), 1, []string{"127.0.0.1"})
		clitest.Must(t, err)
		pair, err := tls.LoadX509KeyPair(info.CertFile, info.KeyFile)
		clitest.Must(t, err)
		root, err := os.ReadFile(filepath.Join(cfg.Directory, "certificates", "authority.pem"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(root)
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
		c, err := dialer.DialContext(t.Context(), "tcp", cfg.Listen.String())
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err = fmt.Fprintf(c, "GET /members HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		return err
	}
	var err error
	netlabtest.Eventually(t, "a member is served", func() bool { err = try(string(cfg.Secret)); return err == nil }, func() string { return fmt.Sprint(err) })
	if err := try("another secret"); err == nil {
		t.Error("one with another secret is served")
	}
}
