package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// startPeer runs the TURN server of another project, with the gateway's user and realm, and waits until it answers.
func (s *turnStage) startPeer(ctx context.Context, name string, at netip.AddrPort) (pid int, err error) {
	path, err := findPeer(name)
	if err != nil {
		return 0, err
	}
	var args []string
	switch name {
	case peerCoturn:
		args = append(coturnArgs(at, s.relay, s.Dir), "--allow-loopback-peers")
		switch s.config.Transport {
		case TransportUDP:
			args = append(args, "--no-tcp", "--no-dtls")
		case TransportTCP:
			args = append(args, "--no-dtls")
		case TransportDTLS:
			// It takes DTLS on the port of UDP too. The one of its own is not used here.
			args = append(args, "--no-tcp", "--tls-listening-port="+strconv.Itoa(int(at.Port())+1))
			err = s.makeCertificate(&args)
		}
	case peerStunner:
		if s.config.Transport == TransportDTLS {
			return 0, fmt.Errorf("%s is not compared over DTLS; write --with %s", name, peerCoturn)
		}
		args, err = s.stunnerArgs(at)
	}
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(path, args...) //nolint:gosec // the program that was requested
	if err := s.startQuiet(s.servers, name, cmd); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, s.answersSTUN(ctx, at, name)
}

// coturnArgs run turnserver without TLS over TCP.
func coturnArgs(at netip.AddrPort, relay netip.Addr, dir string) []string {
	return []string{
		"-n", "--listening-ip=" + at.Addr().String(), "--listening-port=" + strconv.Itoa(int(at.Port())), "--relay-ip=" + relay.String(),
		"--lt-cred-mech", "--user=" + turnUser + ":" + turnPassword, "--realm=" + turnRealm, "--no-cli", "--no-tls",
		"--no-tcp-relay", "--no-rfc5780", "--log-file=/dev/null", "--simple-log", "--pidfile=" + filepath.Join(dir, "coturn.pid"), "--userdb=" + filepath.Join(dir, "coturn.db"),
	}
}

// makeCertificate makes a certificate of the kind that the gateway makes for itself, and names it in the arguments of coturn.
func (s *turnStage) makeCertificate(args *[]string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir turn bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	chain, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		flag, name, kind string
		der              []byte
	}{{"--cert=", "cert.pem", "CERTIFICATE", chain}, {"--pkey=", "key.pem", "PRIVATE KEY", private}} {
		file := filepath.Join(s.Dir, f.name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			return err
		}
		*args = append(*args, f.flag+file)
	}
	return nil
}

// stunnerArgs run stunnerd with one read loop for each core. Its relay sockets have the listener's address.
func (s *turnStage) stunnerArgs(at netip.AddrPort) ([]string, error) {
	file := filepath.Join(s.Dir, "stunnerd.conf")
	text := fmt.Sprintf(`version: v1alpha1
admin: {name: stunnerd}
auth: {type: static, realm: %[1]s, credentials: {username: %[2]s, password: %[3]s}}
listeners:
  - {name: udp, protocol: TURN-UDP, address: %[4]s, port: %[5]d, routes: [sinks]}
  - {name: tcp, protocol: TURN-TCP, address: %[4]s, port: %[5]d, routes: [sinks]}
clusters:
  - {name: sinks, endpoints: [%[6]q]}
`, turnRealm, turnUser, turnPassword, at.Addr(), at.Port(), s.peers())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return []string{"-c", "file://" + file, "-u", strconv.Itoa(runtime.NumCPU()), "-l", "all:ERROR"}, nil
}

// peers is the network that clients may reach: the sink's.
func (s *turnStage) peers() string {
	if s.sinkAddr.IsLoopback() {
		return "127.0.0.0/8"
	}
	return netip.PrefixFrom(s.sinkAddr, 24).Masked().String()
}
