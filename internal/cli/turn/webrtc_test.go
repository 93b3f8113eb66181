package turn

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// startRelay runs a gateway with a listener of each protocol on loopback and returns their TURN URIs by protocol.
// Its certificate is for 127.0.0.1, and its own authority.
func startRelay(t *testing.T, certificate, key string) map[string]string {
	t.Helper()
	uris, listeners := map[string]string{}, ""
	for _, protocol := range []string{"udp", "tcp", "tls", "dtls"} {
		at := netlabtest.UDPAddress(t)
		scheme, transport, secure := "turn", protocol, ""
		if protocol == "tls" || protocol == "dtls" {
			scheme, secure = "turns", fmt.Sprintf(", certificate: %s, key: %s", certificate, key)
			transport = map[string]string{"tls": "tcp", "dtls": "udp"}[protocol]
		}
		uris[protocol] = fmt.Sprintf("%s:%s?transport=%s", scheme, at, transport)
		listeners += fmt.Sprintf("  - {name: %s, protocol: %[1]s, address: %s, port: %d, routes: [loopback]%s}\n", protocol, at.Addr(), at.Port(), secure)
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	text := "auth: {users: [{name: user1, password: passwd1}]}\nlisteners:\n" + listeners +
		"clusters:\n  - {name: loopback, endpoints: [127.0.0.0/8]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.Start(t, "gateway", "turn", "gateway", "-c", file, "--drain-timeout", "1ms") // browsers end without a word
	return uris
}

// Two peers of pion/webrtc, allowed relayed candidates only, exchange media and messages through each kind of listener.
func TestWebRTCThroughTheGateway(t *testing.T) {
	clitest.TakesSeconds(t)
	certificate := os.Getenv("SSL_CERT_FILE")
	if os.Getenv(inTrust) == "" { // pion/webrtc trusts what Go's roots hold, which are read once in a process
		certificate, key := selfSigned(t, t.TempDir())
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), clitest.RunAsWeir+"=", inTrust+"="+key, "SSL_CERT_FILE="+certificate)
		out, err := child.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("PASS: "+t.Name()+"/dtls")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	for protocol, uri := range startRelay(t, certificate, os.Getenv(inTrust)) {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel() // they mostly wait
			caller, callee := relayedPeer(t, uri), relayedPeer(t, uri)
			codec := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}
			tone, err := webrtc.NewTrackLocalStaticSample(codec, "audio", "tone")
			clitest.Must(t, err)
			_, err = caller.AddTrack(tone)
			clitest.Must(t, err)
			received := make(chan struct{})
			callee.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
				for range 50 {
					if _, _, err := track.ReadRTP(); err != nil {
						return
					}
				}
				close(received)
			})
			callee.OnDataChannel(func(c *webrtc.DataChannel) {
				c.OnMessage(func(m webrtc.DataChannelMessage) { _ = c.SendText("echo " + string(m.Data)) })
			})
			channel, err := caller.CreateDataChannel("echo", nil)
			clitest.Must(t, err)
			echoed := make(chan string, 1)
			channel.OnOpen(func() { _ = channel.SendText("hello") })
			channel.OnMessage(func(m webrtc.DataChannelMessage) { echoed <- string(m.Data) })
			introduce(t, caller, callee)

			deadline := time.After(60 * time.Second)
			frames := time.NewTicker(20 * time.Millisecond)
			defer frames.Stop()
			for echo, done := "", false; echo == "" || !done; {
				select {
				case echo = <-echoed:
					if echo != "echo hello" {
						t.Fatalf("the data channel gave back %q", echo)
					}
				case <-received:
					received, done = nil, true
				case <-frames.C:
					clitest.Must(t, tone.WriteSample(media.Sample{Data: []byte{0xf8, 0xff, 0xfe}, Duration: 20 * time.Millisecond}))
				case <-deadline:
					t.Fatalf("after a minute: echo %q, 50 packets of media %v, connection %s", echo, done, caller.ConnectionState())
				}
			}
			pair, err := caller.SCTP().Transport().ICETransport().GetSelectedCandidatePair()
			clitest.Must(t, err)
			if pair.Local.Typ != webrtc.ICECandidateTypeRelay || pair.Remote.Typ != webrtc.ICECandidateTypeRelay {
				t.Errorf("the peers send over %s: not through the gateway alone", pair)
			}
		})
	}
}

// inTrust is set, to the file of the gateway's key, in the process that trusts the gateway's certificate.
const inTrust = "WEIR_TEST_TURN_KEY"

// selfSigned writes a certificate for 127.0.0.1 and its key into dir.
func selfSigned(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	clitest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	clitest.Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(secret)
	clitest.Must(t, err)
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	clitest.Must(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	clitest.Must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	return certificate, key
}

func relayedPeer(t *testing.T, uri string) *webrtc.PeerConnection {
	t.Helper()
	peer, err := webrtc.NewPeerConnection(webrtc.Configuration{
		ICETransportPolicy: webrtc.ICETransportPolicyRelay,
		ICEServers:         []webrtc.ICEServer{{URLs: []string{uri}, Username: "user1", Credential: "passwd1"}},
	})
	clitest.Must(t, err)
	t.Cleanup(func() { _ = peer.Close() })
	return peer
}

// introduce carries offer and answer, with all candidates, from one peer to the other.
func introduce(t *testing.T, caller, callee *webrtc.PeerConnection) {
	t.Helper()
	complete := func(p *webrtc.PeerConnection, describe func() (webrtc.SessionDescription, error)) webrtc.SessionDescription {
		gathered := webrtc.GatheringCompletePromise(p)
		description, err := describe()
		clitest.Must(t, err)
		clitest.Must(t, p.SetLocalDescription(description))
		<-gathered
		return *p.LocalDescription()
	}
	offer := complete(caller, func() (webrtc.SessionDescription, error) { return caller.CreateOffer(nil) })
	clitest.Must(t, callee.SetRemoteDescription(offer))
	answer := complete(callee, func() (webrtc.SessionDescription, error) { return callee.CreateAnswer(nil) })
	clitest.Must(t, caller.SetRemoteDescription(answer))
}

// The same in a browser: two peers of one page in headless Chromium, over UDP and over TCP to the gateway.
func TestChromiumThroughTheGateway(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "chromium")
	certificate, key := selfSigned(t, t.TempDir())
	uris := startRelay(t, certificate, key)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	browser := clitest.NewBrowser(t, listener, clitest.StartChild)
	for _, protocol := range []string{"udp", "tcp"} {
		call := browser.Call(url.Values{"turn": {uris[protocol]}, "user": {"user1"}, "password": {"passwd1"}})
		if call.Error != "" || call.Echo != "echo hello" || call.Packets < 50 || call.Local != "relay" || call.Remote != "relay" || call.Protocol != protocol {
			t.Errorf("the page found %+v; want the echo and 50 packets of audio over relayed candidates and %s", call, protocol)
		}
	}
}
