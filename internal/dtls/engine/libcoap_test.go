package engine_test

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// acknowledger answers every confirmable CoAP request with 2.05 and its token's
// length of payload: as much CoAP (RFC 7252 section 3) as a client needs.
type acknowledger struct{ echo }

func (*acknowledger) Serve(p *engine.Peer, in, out []byte, _ time.Duration) []byte {
	if len(in) < 4 || in[0]>>6 != 1 || in[0]>>4&3 != 0 || len(in) < 4+int(in[0]&15) {
		return out
	}
	token := in[4 : 4+in[0]&15]
	out = append(out, 0x60|in[0]&15, 0x45, in[2], in[3])
	out = append(append(out, token...), 0xff)
	return append(out, "peer "+p.Identity()...)
}

// The clients of libcoap (Debian's libcoap3-bin) on OpenSSL and on GnuTLS.
func TestLibcoapClients(t *testing.T) {
	for _, program := range []string{"coap-client-openssl", "coap-client-gnutls"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel() // a wrong key is not answered at once
			path, err := exec.LookPath(program)
			if err != nil {
				t.Skip("not installed: libcoap3-bin")
			}
			for _, cids := range []*engine.CIDs{nil, engine.ByteOwnerCIDs(6, 1)} {
				h := new(acknowledger)
				e, _ := serve(t, engine.Config{Workers: 1, CIDs: cids, NewHandler: func(*engine.Worker) engine.Handler { return h }})
				ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
				defer cancel()
				out, err := exec.CommandContext(ctx, path, "-B", "30", "-m", "get", "-u", "cali.libcoap", "-k", ".fornium",
					"coaps://"+e.Addr().String()+"/x").CombinedOutput()
				if err != nil || !bytes.Contains(out, []byte("peer cali.libcoap")) {
					t.Fatalf("%v: %s", err, out)
				}
				stats(t, e, "a session, ended by close_notify", func(s engine.Stats) bool {
					return s.Handshakes == 1 && s.Sessions == 0 && s.BadMACs+s.Malformed == 0
				})
				out, _ = exec.CommandContext(ctx, path, "-B", "1", "-m", "get", "-u", "cali.libcoap", "-k", "wrong",
					"coaps://"+e.Addr().String()+"/x").CombinedOutput()
				if strings.Contains(string(out), "peer") {
					t.Fatalf("a wrong key is served: %s", out)
				}
			}
		})
	}
}

// An engine with nothing to do does nothing.
func TestIdleWorkersSleep(t *testing.T) {
	for _, plain := range []bool{true, false} {
		e, _ := serve(t, engine.Config{Workers: 1, Plain: plain})
		const posts = 50
		for range posts {
			done := make(chan struct{})
			if !e.Workers()[0].Post(func() { close(done) }) {
				t.Fatal("a post is refused")
			}
			<-done
		}
		// One round for each post, one more where its wake-up is seen late, and the first.
		if s := stats(t, e, "some rounds", func(s engine.Stats) bool { return s.Rounds > posts/2 }); s.Rounds > 3*posts+10 {
			t.Errorf("%d rounds for %d posts", s.Rounds, posts)
		}
	}
}
