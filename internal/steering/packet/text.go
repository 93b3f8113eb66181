package packet

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Described is what ParseText made.
type Described struct {
	Packets [][]byte // one, or the fragments in order
	Frame   bool     // they start at Ethernet, not at IP
}

// maxTextPayload bounds payload=N.
const maxTextPayload = 65000

// ParseText builds packets from a line such as
//
//	udp 10.0.0.1:5000 > 192.0.2.1:5684 16fefd00 ttl=3
//	tcp [2001:db8::1]:5 > [2001:db8::2]:443 flags=syn
//	ping 10.0.0.1 > 192.0.2.1 ident=7           also pong, proto47
//	udp 10.0.0.1:5 > 192.0.2.1:7 payload=3000 id=9 frag=1400 piece=2
//	toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:5000
//	unreachable 10.9.9.9 quote=28 about …
//	ipip 10.0.0.9 > 10.1.0.1 carrying …         also gue SRC:PORT > DST
//
// Hex digits are the payload. Options: payload=N (N bytes), ttl= class= id= df
// csum=0 flags=syn,ack,fin,rst,psh opt=BYTES (IPv4) ext=hop:0,dest:1,routing:0,auth:1
// inner=dest:0 (IPv6; units of length; inner ones stand behind a fragment header) frag=BYTES piece=N vlan=10,20 ident= seq=. Errors say what to write.
func ParseText(line string) (Described, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return Described{}, fmt.Errorf("empty packet; write udp 10.0.0.1:5000 > 192.0.2.1:5684")
	}
	switch words[0] {
	case "toobig", "unreachable":
		return parseErrorText(words)
	case "ipip", "gue":
		return parseTunnelText(words)
	}
	t := text{piece: -1}
	if err := t.parse(words); err != nil {
		return Described{}, err
	}
	return t.build()
}

// text is a line being read.
type text struct {
	packet      Build
	frag, piece int
	ident, seq  int
}

func parseErrorText(words []string) (Described, error) {
	head, inner, ok := split(words, "about")
	if !ok {
		return Described{}, fmt.Errorf("%s lacks its quoted packet; write %s ROUTER about udp …", words[0], words[0])
	}
	quoted, err := ParseText(strings.Join(inner, " "))
	if err != nil {
		return Described{}, err
	}
	if len(quoted.Packets) != 1 || quoted.Frame {
		return Described{}, fmt.Errorf("the quoted packet must be one packet without vlan; add piece=N to one with frag=")
	}
	if len(head) < 2 {
		return Described{}, fmt.Errorf("%s lacks the address of the router that sends it", words[0])
	}
	router, err := netip.ParseAddr(head[1])
	if err != nil {
		return Described{}, fmt.Errorf("%q is no router address", head[1])
	}
	if (quoted.Packets[0][0]>>4 == 4) != router.Is4() {
		return Described{}, fmt.Errorf("router %s and the quoted packet are of different families", router)
	}
	rest := head[2:]
	mtu := 0
	if words[0] == "toobig" {
		if len(rest) == 0 {
			return Described{}, fmt.Errorf("toobig lacks the MTU; write toobig %s 1300 about …", router)
		}
		if mtu, err = strconv.Atoi(rest[0]); err != nil || mtu < 1 || mtu > 65535 {
			return Described{}, fmt.Errorf("%q is no MTU; write 1 to 65535", rest[0])
		}
		rest = rest[1:]
	}
	limit := 1232
	for _, w := range rest {
		v, ok := strings.CutPrefix(w, "quote=")
		if !ok {
			return Described{}, fmt.Errorf("%q is not known here; quote=BYTES is", w)
		}
		if limit, err = strconv.Atoi(v); err != nil || limit < 0 {
			return Described{}, fmt.Errorf("quote=%s is no number of bytes", v)
		}
	}
	return Described{Packets: [][]byte{Quote(router, quoted.Packets[0], mtu, limit)}}, nil
}

func parseTunnelText(words []string) (Described, error) {
	head, inner, ok := split(words, "carrying")
	if !ok || len(head) != 4 || head[2] != ">" {
		return Described{}, fmt.Errorf("write %s SRC > DST carrying udp …", words[0])
	}
	carried, err := ParseText(strings.Join(inner, " "))
	if err != nil {
		return Described{}, err
	}
	if carried.Frame {
		return Described{}, fmt.Errorf("a tunnel carries IP, not frames; remove vlan=")
	}
	dst, err := netip.ParseAddr(head[3])
	if err != nil {
		return Described{}, fmt.Errorf("%q is no address", head[3])
	}
	for i, p := range carried.Packets {
		var out []byte
		if words[0] == "gue" {
			src, err := netip.ParseAddrPort(head[1])
			if err != nil {
				return Described{}, fmt.Errorf("%q is no address with port", head[1])
			}
			out = AppendGUE(nil, src.Addr(), dst, src.Port(), p)
		} else {
			src, err := netip.ParseAddr(head[1])
			if err != nil {
				return Described{}, fmt.Errorf("%q is no address", head[1])
			}
			out = AppendIPIP(nil, src, dst, p)
		}
		if out == nil {
			return Described{}, fmt.Errorf("the packet does not fit into that tunnel: families differ or too long")
		}
		carried.Packets[i] = out
	}
	return carried, nil
}

func split(words []string, at string) (head, tail []string, ok bool) {
	for i, w := range words {
		if w == at {
			return words[:i], words[i+1:], true
		}
	}
	return words, nil, false
}

func (t *text) parse(words []string) error {
	if len(words) < 4 || words[2] != ">" {
		return fmt.Errorf("write PROTOCOL SOURCE > DESTINATION, such as udp 10.0.0.1:5000 > 192.0.2.1:5684")
	}
	b := &t.packet
	ports := true
	switch words[0] {
	case "udp":
		b.Proto = flow.ProtoUDP
	case "tcp":
		b.Proto = flow.ProtoTCP
	case "sctp":
		b.Proto = flow.ProtoSCTP
	case "ping", "icmp", "icmpv6", "pong":
		b.Proto, ports = flow.ProtoICMP, false
	default:
		n, err := strconv.ParseUint(strings.TrimPrefix(words[0], "proto"), 10, 8)
		if err != nil {
			return fmt.Errorf("unknown protocol %q; write udp, tcp, sctp, ping, pong or proto47", words[0])
		}
		b.Proto, ports = uint8(n), false
	}
	var err error
	if b.Src, err = endpoint(words[0], words[1], ports); err != nil {
		return err
	}
	if b.Dst, err = endpoint(words[0], words[3], ports); err != nil {
		return err
	}
	if b.Src.Addr().Is4() != b.Dst.Addr().Is4() {
		return fmt.Errorf("%s and %s are of different families", b.Src.Addr(), b.Dst.Addr())
	}
	if b.Proto == flow.ProtoICMP {
		t.ping(words[0] == "pong")
	}
	for _, w := range words[4:] {
		if err := t.option(w); err != nil {
			return err
		}
	}
	if !ports {
		b.ICMPRest = uint32(t.ident)<<16 | uint32(t.seq)
	}
	return nil
}

func (t *text) ping(reply bool) {
	b := &t.packet
	b.ICMPType = icmp4Echo
	if reply {
		b.ICMPType = icmp4EchoReply
	}
	if b.Dst.Addr().Is6() {
		b.Proto, b.ICMPType = flow.ProtoICMPv6, icmp6Echo
		if reply {
			b.ICMPType = icmp6EchoReply
		}
	}
}

// endpoint reads an address, with its port if the protocol has ports.
func endpoint(proto, s string, ports bool) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		if !ports {
			return ap, fmt.Errorf("%s has no ports; write %s instead of %s", proto, ap.Addr(), s)
		}
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	switch {
	case err == nil && !ports:
		return netip.AddrPortFrom(a.Unmap(), 0), nil
	case err == nil && a.Is4():
		return netip.AddrPort{}, fmt.Errorf("%s needs a port; write %s:5684", proto, a)
	case err == nil && s[0] != '[':
		i := strings.LastIndexByte(s, ':')
		return netip.AddrPort{}, fmt.Errorf("%s needs a port, and IPv6 brackets; write [%s]:5684, or [%s]%s if that is meant", proto, a, s[:i], s[i:])
	case err == nil:
		return netip.AddrPort{}, fmt.Errorf("%s needs a port; write [%s]:5684", proto, a)
	}
	if i := strings.LastIndexByte(s, ':'); i > 0 && strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with port; an IPv6 address needs brackets: [%s]%s", s, s[:i], s[i:])
	}
	return netip.AddrPort{}, fmt.Errorf("%q is no address with port; write 10.0.0.1:5684 or [2001:db8::1]:5684 (names are not looked up)", s)
}

func (t *text) option(w string) error {
	b := &t.packet
	key, value, has := strings.Cut(w, "=")
	if !has {
		if key == "df" {
			b.DontFrag = true
			return nil
		}
		payload, err := hex.DecodeString(strings.TrimPrefix(w, "0x"))
		if err != nil {
			return fmt.Errorf("%q is neither hex payload nor option=value", w)
		}
		b.Payload = append(b.Payload, payload...)
		return nil
	}
	switch key {
	case "flags":
		return t.flags(value)
	case "ext":
		return t.extensions(key, value, &b.Extensions)
	case "inner":
		return t.extensions(key, value, &b.Inner)
	case "vlan":
		return t.vlans(value)
	}
	return t.numeric(key, value)
}

func (t *text) vlans(value string) error {
	for _, v := range strings.Split(value, ",") {
		n, err := number("vlan", v, 0, 4095)
		if err != nil {
			return err
		}
		if t.packet.VLANs = append(t.packet.VLANs, uint16(n)); len(t.packet.VLANs) > 3 {
			return fmt.Errorf("vlan=%s: at most three tags", value)
		}
	}
	return nil
}

// numeric reads an option whose value is a number.
func (t *text) numeric(key, value string) error {
	b := &t.packet
	limits := map[string][2]int{
		"payload": {0, maxTextPayload}, "ttl": {0, 255}, "class": {0, 255}, "id": {0, 1<<32 - 1}, "csum": {0, 0},
		"opt": {0, 40}, "frag": {8, 65528}, "piece": {1, 8192}, "ident": {0, 65535}, "seq": {0, 65535},
	}
	limit, ok := limits[key]
	if !ok {
		return fmt.Errorf("unknown option %q; known: payload ttl class id df csum flags opt ext inner frag piece vlan ident seq", key)
	}
	n, err := number(key, value, limit[0], limit[1])
	if err != nil {
		return err
	}
	switch key {
	case "payload":
		for i := range n {
			b.Payload = append(b.Payload, byte(i))
		}
	case "ttl":
		b.TTL = uint8(n)
	case "class":
		b.Class = uint8(n)
	case "id":
		b.ID = uint32(n)
	case "csum":
		b.NoChecksum = true
	case "opt":
		b.IPv4Options = make([]byte, (n+3)&^3)
		for i := range b.IPv4Options {
			b.IPv4Options[i] = 1 // no operation
		}
	case "frag":
		t.frag = n
	case "piece":
		t.piece = n
	case "ident":
		t.ident = n
	case "seq":
		t.seq = n
	}
	return nil
}

func number(key, value string, low, high int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s=%s: write a number from %d to %d", key, value, low, high)
	}
	return n, nil
}

func (t *text) flags(value string) error {
	names := map[string]uint8{"fin": FIN, "syn": SYN, "rst": RST, "psh": PSH, "ack": ACK, "urg": URG}
	for _, name := range strings.Split(value, ",") {
		f, ok := names[name]
		if !ok {
			return fmt.Errorf("unknown TCP flag %q; known: syn ack fin rst psh urg", name)
		}
		t.packet.Flags |= f
	}
	return nil
}

func (t *text) extensions(key, value string, to *[]Extension) error {
	types := map[string]uint8{"hop": extHopByHop, "dest": extDestOpts, "routing": extRouting, "auth": extAuth}
	for _, item := range strings.Split(value, ",") {
		name, units, _ := strings.Cut(item, ":")
		kind, ok := types[name]
		if !ok {
			return fmt.Errorf("unknown extension header %q; known: hop dest routing auth", name)
		}
		n, err := number(key+" "+name, units, 0, 255)
		if err != nil {
			return err
		}
		if *to = append(*to, Extension{kind, uint8(n)}); len(*to) > 16 {
			return fmt.Errorf("more than 16 extension headers")
		}
	}
	return nil
}

func (t *text) build() (Described, error) {
	out := [][]byte{t.packet.Append(nil)}
	if t.frag > 0 {
		out = t.packet.Fragments(t.frag)
	}
	if t.piece > len(out) {
		return Described{}, fmt.Errorf("piece=%d: there are only %d", t.piece, len(out))
	}
	if t.piece > 0 {
		out = out[t.piece-1 : t.piece]
	}
	if len(out[0]) > 65535 {
		return Described{}, fmt.Errorf("the packet would have %d bytes, more than IP allows", len(out[0]))
	}
	if len(t.packet.VLANs) == 0 {
		return Described{Packets: out}, nil
	}
	for i := range out {
		out[i] = t.packet.AppendFrame(nil, [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}, out[i])
	}
	return Described{Packets: out, Frame: true}, nil
}
