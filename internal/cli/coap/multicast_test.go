package coap

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// multicastLab is a switch with a client and some servers.
func multicastLab(t *testing.T, servers ...string) *netlab.Lab {
	t.Helper()
	topology := netlab.Topology{
		Name:       "coapgroup",
		Namespaces: []netlab.Namespace{{Name: "switch", Bridges: []netlab.Bridge{{Name: "br0"}}}, {Name: "client"}},
	}
	link := func(name string, number int) {
		topology.Links = append(topology.Links, netlab.Link{
			A: netlab.End{Namespace: "switch", Name: fmt.Sprintf("p%d", number), Bridge: "br0"},
			B: netlab.End{Namespace: name, Name: "eth0", Addresses: netlab.Prefixes(fmt.Sprintf("10.78.0.%d/24", number), fmt.Sprintf("fd78::%d/64", number))},
		})
	}
	link("client", 100)
	for i, name := range servers {
		topology.Namespaces = append(topology.Namespaces, netlab.Namespace{Name: name})
		link(name, i+1)
	}
	return netlabtest.Up(t, topology)
}

// quiet are the flags of a server that a test does not query and that is killed: it leaves no admin socket in the user's directory.
var quiet = []string{"--no-supervisor", "--admin", "", "--metrics", ""}

// startIn runs a program in a namespace until the test ends, and waits until it has written a text.
func startIn(t *testing.T, lab *netlab.Lab, namespace, awaited string, command ...string) {
	t.Helper()
	log := &clitest.LockedBuffer{}
	program := exec.Command(command[0], command[1:]...)
	program.Stderr, program.Stdout = log, log
	if err := lab.Namespace(namespace).Start(program); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	t.Cleanup(func() {
		_ = program.Process.Kill() // it may have ended
		<-ended
	})
	if awaited != "" {
		netlabtest.Eventually(t, fmt.Sprintf("%q of %s", awaited, command), func() bool { return strings.Contains(log.String(), awaited) }, log.String)
	}
}

func discoverGroup(t *testing.T, lab *netlab.Lab, uri string, args ...string) []v1.CoAPServerLinks {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output, err := lab.Namespace("client").Exec(t.Context(), self, append([]string{"coap", "discover", uri, "--json"}, args...)...)
	if err != nil {
		t.Fatalf("%s: %v %s", uri, err, output)
	}
	var found []v1.CoAPServerLinks
	if err := json.Unmarshal([]byte(output), &found); err != nil {
		t.Fatalf("%s: %v %s", uri, err, output)
	}
	return found
}

// One command finds Weir's servers and libcoap's on a link, with their whole lists; libcoap's client finds Weir's.
func TestRootDiscoveryByMulticast(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "coap-client-notls", "coap-server-notls")
	lab := multicastLab(t, "one", "two", "three", "silent")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	startIn(t, lab, "one", "listening", append([]string{self, "coap", "server", "--listen", ":5683", "--dtls", "127.0.0.1:0", "--multicast", "--leisure", "500ms", "--workers", "1"}, quiet...)...)
	startIn(t, lab, "two", "listening", append([]string{self, "coap", "server", "--listen", "10.78.0.2:5683,[fd78::2]:5683", "--dtls", "127.0.0.1:0", "--multicast-interface", "eth0", "--leisure", "500ms"}, quiet...)...)
	startIn(t, lab, "three", "", "coap-server-notls", "-A", "0.0.0.0", "-p", "5683", "-g", "224.0.1.187", "-G", "eth0")
	startIn(t, lab, "silent", "listening", append([]string{self, "coap", "server", "--listen", ":5683", "--dtls", "127.0.0.1:0"}, quiet...)...)
	// Another program of that host is a member, so its network stack takes what comes to the group.
	if err := lab.Namespace("silent").Do(func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		for network, group := range map[string]string{"udp4": "224.0.1.187", "udp6": "ff02::fd"} {
			other, err := net.ListenMulticastUDP(network, device, &net.UDPAddr{IP: net.ParseIP(group), Port: 9})
			if err != nil {
				return err
			}
			t.Cleanup(func() { other.Close() })
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for uri, hosts := range map[string][]string{
		"coap://224.0.1.187":         {"10.78.0.1", "10.78.0.2", "10.78.0.3"},
		"coap://[ff02::fd%eth0]":     {"fe80::", "fd78::2"},
		"coap://[ff05::fd%25eth0]":   {"fd78::1", "fd78::2"},
		"coap://224.0.1.187?rt=none": nil, // an empty result is suppressed
	} {
		t.Run(uri, func(t *testing.T) {
			if hosts == nil {
				output, err := lab.Namespace("client").Exec(t.Context(), self, "coap", "discover", uri, "--interface", "eth0", "--wait", "2s")
				if fromLibcoap := "10.78.0.3:5683"; strings.Contains(output, fromLibcoap) { // it may answer with an empty list
					if err != nil || strings.Count(output, "\n") != 2 || !strings.Contains(output, "(none)") {
						t.Errorf("%v %s", err, output)
					}
				} else if err == nil || !strings.Contains(output, "no server answered") {
					t.Errorf("%v %s", err, output)
				}
				return
			}
			var found []v1.CoAPServerLinks
			netlabtest.Eventually(t, "all servers answer", func() bool {
				found = discoverGroup(t, lab, uri, "--interface", "eth0", "--wait", "3s")
				return len(found) == len(hosts)
			}, func() string { return fmt.Sprintf("%+v", found) })
			for _, host := range hosts {
				matching := 0
				for _, s := range found {
					address, err := netip.ParseAddrPort(s.Source)
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(address.Addr().String(), host) && len(s.Links) > 0 && s.Error == "" {
						matching++
						if weir := strings.Contains(fmt.Sprint(s.Links), "/reverse-request"); weir != (host != "10.78.0.3") {
							t.Errorf("%s: list %v", s.Source, s.Links)
						}
					}
				}
				if matching != 1 {
					t.Errorf("%s answered %d times with a list: %+v", host, matching, found)
				}
			}
		})
	}
	output, err := lab.Namespace("client").Exec(t.Context(), self, "coap", "discover", "coap://224.0.1.187", "--interface", "eth0", "--wait", "3s")
	if err != nil || !strings.Contains(output, "10.78.0.1:5683") || !strings.Contains(output, "/reverse-request") {
		t.Errorf("%v %s", err, output)
	}
	// libcoap's client prints what each server sends: here the first block, for no one has proven its address.
	if output, err := lab.Namespace("client").Exec(t.Context(), "ip", "route", "add", "224.0.0.0/4", "dev", "eth0"); err != nil {
		t.Fatalf("%v %s", err, output)
	}
	output, err = lab.Namespace("client").Exec(t.Context(), "coap-client-notls", "-N", "-B", "4", "-v", "7", "coap://224.0.1.187/.well-known/core")
	if !strings.Contains(output, "10.78.0.1:5683") || !strings.Contains(output, "10.78.0.2:5683") {
		t.Errorf("libcoap's client: %v %s", err, output)
	}
	t.Run("amplification", func(t *testing.T) { amplificationOfAGroup(t, lab) })
}

// A client that proves nothing gets from each server at most three times what it sent to the group.
func amplificationOfAGroup(t *testing.T, lab *netlab.Lab) {
	var conn *net.UDPConn
	if err := lab.Namespace("client").Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent, received, messages := 0, map[netip.Addr]int{}, 0
	for i := range 20 {
		request := append([]byte{0x51, 0x01, 0, byte(i), byte(i), 0xbb}, ".well-known\x04core"...)
		if _, err := conn.WriteToUDPAddrPort(request, netip.MustParseAddrPort("224.0.1.187:5683")); err != nil {
			t.Fatal(err)
		}
		sent += len(request)
	}
	if err := conn.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			break
		}
		if a := from.Addr().Unmap(); a != netip.MustParseAddr("10.78.0.3") { // libcoap's has no such bound
			received[a] += n
			messages++
		}
	}
	if messages == 0 || len(received) != 2 {
		t.Fatalf("answers %v", received)
	}
	for from, n := range received {
		if n > 3*sent {
			t.Errorf("%s sent %d bytes for %d", from, n, sent)
		}
	}
}
