package bench

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

func testFrames(kind string) *frames {
	attack := &Attack{
		Kind: kind, To: netip.MustParseAddrPort("10.82.9.1:7000"), Sources: netip.MustParsePrefix("198.18.0.0/15"),
		GatewayMAC: [6]byte{2, 0, 0, 0, 0, 1}, SourceMAC: [6]byte{2, 0, 0, 0, 0, 2}, CID: []byte{1, 2, 3, 4, 5, 6}, Flows: 200,
	}
	return &frames{attack: attack, random: rand.New(rand.NewPCG(1, 2)), replied: map[netip.AddrPort]bool{}}
}

// Every frame of every attack has right lengths and checksums, comes from the spoofed prefix, and no two are of one flow.
func TestAttackFrames(t *testing.T) {
	for _, kind := range attackKinds() {
		f := testFrames(kind)
		flows, ids := map[string]bool{}, map[uint16]bool{}
		for range 200 {
			frame := f.next(make([]byte, attackFrameMax))
			ip := frame[14:]
			if len(ip) != int(binary.BigEndian.Uint16(ip[2:])) || onesComplement(ip[:20], 0) != 0 {
				t.Fatalf("%s: length %d or checksum of % x", kind, len(ip), ip[:20])
			}
			source, protocol := netip.AddrFrom4([4]byte(ip[12:16])), ip[9]
			if !f.attack.Sources.Contains(source) || netip.AddrFrom4([4]byte(ip[16:20])) != f.attack.To.Addr() {
				t.Fatalf("%s: from %v", kind, source)
			}
			pseudo := append(append([]byte{}, ip[12:20]...), ip[20:]...)
			if len(pseudo)%2 == 1 {
				pseudo = append(pseudo, 0)
			}
			if sum := onesComplement(pseudo, uint32(protocol)+uint32(len(ip)-20)); sum != 0 {
				t.Fatalf("%s: transport checksum off by %x", kind, sum)
			}
			flows[string(ip[12:16])+string(ip[20:22])] = true
			ids[binary.BigEndian.Uint16(ip[4:])] = true
			offset := binary.BigEndian.Uint16(ip[6:])
			if first, later := offset == 0x2000, offset == 185; first != (kind == attackFirst) || later != (kind == attackLater) {
				t.Fatalf("%s: fragment offset %x", kind, offset)
			}
			if (protocol == unix.IPPROTO_TCP) != (kind == attackSYN) {
				t.Fatalf("%s: protocol %d", kind, protocol)
			}
		}
		if len(flows) < 195 || len(ids) != 200 {
			t.Errorf("%s: %d flows and %d ids in 200 frames", kind, len(flows), len(ids))
		}
	}
}

// A few sources are spread over the prefix: shares by network do not make them one.
func TestAttackSources(t *testing.T) {
	f := testFrames(attackHalfOpen)
	f.attack.Addresses = 4
	networks := map[netip.Prefix]bool{}
	for range 200 {
		networks[netip.PrefixFrom(f.source(), 24).Masked()] = true
	}
	if len(networks) != 4 {
		t.Errorf("%v", networks)
	}
}

// Re-ordered fragments make the datagram again: lengths, offsets, checksums, one id for both and another for the next datagram.
func TestReorderedFragments(t *testing.T) {
	c := &reorderedConn{frames: *testFrames(attackLater), from: netip.MustParseAddrPort("10.82.1.2:4000")}
	payload := make([]byte, 2401)
	for i := range payload {
		payload[i] = byte(i)
	}
	first, later := c.fragments(payload)
	var whole []byte
	for i, frame := range [][]byte{first, later} {
		ip := frame[14:]
		if len(ip) != int(binary.BigEndian.Uint16(ip[2:])) || onesComplement(ip[:20], 0) != 0 || netip.AddrFrom4([4]byte(ip[12:16])) != c.from.Addr() {
			t.Fatalf("fragment %d: % x", i, ip[:20])
		}
		if offset := binary.BigEndian.Uint16(ip[6:]); int(offset&0x1fff)*8 != len(whole) || (offset&0x2000 != 0) != (i == 0) {
			t.Errorf("fragment %d: offset %x behind %d bytes", i, offset, len(whole))
		}
		whole = append(whole, ip[20:]...)
	}
	pseudo := append(append([]byte{}, first[26:34]...), whole...)
	if len(pseudo)%2 == 1 {
		pseudo = append(pseudo, 0)
	}
	if sum := onesComplement(pseudo, unix.IPPROTO_UDP+uint32(len(whole))); sum != 0 || !bytes.Equal(whole[8:], payload) {
		t.Errorf("another datagram: checksum off by %x", sum)
	}
	again, _ := c.fragments(payload)
	if !bytes.Equal(first[18:20], later[18:20]) || bytes.Equal(first[18:20], again[18:20]) {
		t.Errorf("ids % x, % x, then % x", first[18:20], later[18:20], again[18:20])
	}
}

// What the target says to a half-open handshake and to a set-up is replied to once, as the protocols want it.
func TestAttackReplies(t *testing.T) {
	client := netip.MustParseAddrPort("198.18.0.1:4000")
	f := testFrames(attackHalfOpen)
	verify := append([]byte{22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 19, 3, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 7, 0xfe, 0xff, 4}, "cook"...)
	reply, done := f.reply(client, verify)
	if !done || !bytes.Contains(reply, []byte("\x00\x04cook")) {
		t.Errorf("a cookie is answered by % x", reply)
	}
	first := f.clientHello(client, nil)
	if !bytes.Equal(first[27:59], reply[27:59]) {
		t.Error("the second ClientHello has another random: no cookie fits it")
	}
	if again, _ := f.reply(client, verify); again != nil {
		t.Error("a client that is silent sends again")
	}
	if reply, done := f.reply(client, verify[:30]); reply != nil || done {
		t.Error("a cut cookie is answered")
	}

	f = testFrames(attackSetUp)
	challenge := append([]byte{1, 0x13, 0, 20, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...)
	challenge = append(challenge, "\x00\x14\x00\x04weir\x00\x15\x00\x05nonce\x00\x00\x00"...)
	reply, done = f.reply(client, challenge)
	if done || !bytes.Contains(reply, []byte("\x00\x15\x00\x05nonce")) || int(binary.BigEndian.Uint16(reply[2:])) != len(reply)-20 || len(reply)%4 != 0 {
		t.Errorf("a challenge is answered by %q", reply)
	}
	if reply, done := f.reply(client, append([]byte{1, 3, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...)); reply != nil || !done {
		t.Error("an allocation is no success")
	}
}

func TestObserveCID(t *testing.T) {
	f := testFrames(attackForged)
	frame := f.next(make([]byte, attackFrameMax))
	if cid := observeCID(frame, f.attack.To, 6); !bytes.Equal(cid, f.attack.CID) {
		t.Errorf("% x", cid)
	}
	if cid := observeCID(frame, netip.MustParseAddrPort("10.82.9.1:7001"), 6); cid != nil {
		t.Errorf("of another server: % x", cid)
	}
	if cid := observeCID(frame[:60], f.attack.To, 6); cid != nil {
		t.Errorf("of a cut frame: % x", cid)
	}
}

func TestAttackValidate(t *testing.T) {
	good := Attack{
		Kind: attackSYN, Gateway: "02:00:00:00:00:01", To: netip.MustParseAddrPort("10.0.0.1:80"),
		Sources: netip.MustParsePrefix("198.18.0.0/15"), Duration: time.Second,
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Attack){
		"no MAC address":       func(a *Attack) { a.Gateway = "x" },
		"no kind":              func(a *Attack) { a.Kind = "x" },
		"a prefix of at most":  func(a *Attack) { a.Sources = netip.MustParsePrefix("fd00::/64") },
		"need a connection id": func(a *Attack) { a.Kind = attackForged },
		"up to an hour":        func(a *Attack) { a.Duration = 0 },
		"0 known flows":        func(a *Attack) { a.Kind = attackKnown },
		"a debt of":            func(a *Attack) { a.Debt = time.Minute },
	} {
		a := good
		change(&a)
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The cells that words name, and what is refused.
func TestFloodsConfig(t *testing.T) {
	for only, want := range map[string]int{"": 30, "syn": 7, "coap": 4, "coap-x509": 2, "udp-flows/nat-xdp": 1, "udp-flows/nat-xdp,syn/nfqueue": 2} {
		c := FloodsConfig{Duration: time.Second}
		if only != "" {
			c.Only = strings.Split(only, ",")
		}
		if n := len(c.cells()); only == "" && n < want || only != "" && n != want {
			t.Errorf("%q: %d floods, want %d", only, n, want)
		}
	}
	with := FloodsConfig{Duration: time.Second, Only: []string{"udp-flows"}, With: []string{"coturn"}}
	for _, cell := range with.cells() {
		if cell.target.peer {
			t.Errorf("%s was not requested", cell.target.name)
		}
	}
	for want, c := range map[string]FloodsConfig{
		"--duration 0s": {},
		"--only syn/":   {Duration: time.Second, Only: []string{"syn/udp"}},
		`--with "x"`:    {Duration: time.Second, With: []string{"x"}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Each aim is judged, a peer has none, and table and page say what was missed.
func TestFloodVerdicts(t *testing.T) {
	run := func(peer bool, clients floodClients) *measure.Result {
		r := &floodRun{clients: clients}
		r.target.peer, r.target.certificates = peer, clients.returned+clients.signatures > 0
		result := &measure.Result{Scenario: scenarioFloods, Path: "coap", Parameters: map[string]string{paramLoad: attackLater}}
		r.fill(result, 3000, 1000)
		result.Figures = append(result.Figures, measure.Figure{Name: figureResidentBefore, Value: 1e6}, measure.Figure{Name: figureResidentMax, Value: 2e6})
		r.judge(result)
		return result
	}
	good := floodClients{newOK: 95, newAll: 100, movesDue: 100, moved: 90, asleep: 50, kept: 50, established: 20, fragmented: 10}
	certified := good
	certified.returned, certified.signatures = 100, 100
	for _, c := range []floodClients{good, certified} {
		if v := run(false, c).Parameters[paramVerdict]; v != verdictReached {
			t.Errorf("good: %s", v)
		}
	}
	for want, change := range map[string]func(*floodClients){
		"new clients 94 of 100":                        func(c *floodClients) { c.newOK = 94 },
		"1 requests or sessions of moved clients lost": func(c *floodClients) { c.movedLost = 1 },
		"moved clients stood still: 60 of 100 moves":   func(c *floodClients) { c.moved = 60 },
		"sleeping sessions 49 of 50":                   func(c *floodClients) { c.kept = 49 },
		"1 of 20 established lost":                     func(c *floodClients) { c.lost = 1 },
		"1 of 10 fragmented datagrams lost":            func(c *floodClients) { c.fragmentsLost = 1 },
		"1 of 10 whole datagrams lost":                 func(c *floodClients) { c.sent, c.wholeLost = 10, 1 },
		"1 signatures for 0 returned cookies":          func(c *floodClients) { c.signatures = 1 },
		"101 signatures for 100 returned cookies":      func(c *floodClients) { c.returned, c.signatures = 100, 101 },
		"only 49 signatures for 100 returned cookies: not a flood of handshakes with certificates": func(c *floodClients) { c.returned, c.signatures = 100, 49 },
		"new clients 0 of 100; sleeping sessions 0 of 50":                                          func(c *floodClients) { c.newOK, c.kept = 0, 0 },
		"sleeping sessions 0 of 50; 20 of 20 established lost":                                     func(c *floodClients) { c.kept, c.lost = 0, 20 },
	} {
		c := good
		change(&c)
		missed, peer := run(false, c), run(true, c)
		if missed.Parameters["missed"] != want || missed.Parameters[paramVerdict] != verdictMissed || peer.Parameters[paramVerdict] != verdictPeer {
			t.Errorf("%v and %v, want %q", missed.Parameters, peer.Parameters, want)
		}
		results := []*measure.Result{missed, peer, {Scenario: scenarioFloods, Path: "turn", Parameters: map[string]string{paramVerdict: "skipped: no turnserver"}}}
		if n := missedBy(results); n != 1 {
			t.Errorf("%d failed", n)
		}
		table, page := shown(t, results)
		for _, text := range []string{want, "reached 1000 of 3000/s", "missed 1, peer 1, skipped 1"} {
			if !strings.Contains(table, text) || !strings.Contains(page, text) {
				t.Errorf("%q is missing in\n%s", text, table)
			}
		}
	}
}

// onesComplement is the Internet checksum (RFC 1071) of data, whose length is even, and more.
func onesComplement(data []byte, more uint32) uint16 {
	for i := 0; i < len(data); i += 2 {
		more += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for more > 0xffff {
		more = more>>16 + more&0xffff
	}
	return ^uint16(more)
}
