package routes

import "net/netip"

// embeddedIPv4 calls yield with each IPv4 address to which a translator, tunnel or old stack may convert an IPv6 address, and with
// the number of bits before it. A prefix that contains such an address and is longer than that by n bits contains a range of IPv4
// addresses with a prefix length of n. 128 is for forms in which the IPv4 address is not contiguous.
func embeddedIPv4(a netip.Addr, yield func(v4 netip.Addr, before int)) {
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case prefixed(b, 0x0064, 0xff9b, 0, 0, 0, 0): // NAT64, RFC 6052 §2.1
		yield(at(12), 96)
	case prefixed(b, 0x0064, 0xff9b, 1): // local NAT64 (RFC 8215), in each form that RFC 6052 §2.2 has for its length
		if !zero(b[12:]) { // otherwise the translator's prefix is shorter
			yield(at(12), 96)
		}
		if b[8] != 0 {
			break
		}
		for _, form := range []struct {
			rest   int // offset from which all bytes are zero
			v4     [4]byte
			before int
		}{
			{11, [4]byte{b[6], b[7], b[9], b[10]}, 128},
			{12, [4]byte{b[7], b[9], b[10], b[11]}, 128},
			{13, [4]byte(b[9:13]), 72},
		} {
			if zero(b[form.rest:]) && form.v4[0] != 0 { // 0.0.0.0/8 results from reading one form as another
				yield(netip.AddrFrom4(form.v4), form.before)
			}
		}
	case prefixed(b, 0, 0, 0, 0, 0, 0): // IPv4-compatible, RFC 4291 §2.5.5.1
		yield(at(12), 96)
	case prefixed(b, 0, 0, 0, 0, 0xffff, 0): // IPv4-translated, RFC 2765 §2.1
		yield(at(12), 96)
	case prefixed(b, 0x2002): // 6to4, RFC 3056 §2
		yield(at(2), 16)
	case prefixed(b, 0x2001, 0): // Teredo, RFC 4380 §4: the server, and the client with every bit inverted
		yield(at(4), 32)
		yield(netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), 96)
	}
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214 §6.1
		yield(at(12), 96)
	}
}

// prefixed reports whether an address begins with these groups.
func prefixed(b [16]byte, groups ...uint16) bool {
	for i, g := range groups {
		if b[2*i] != byte(g>>8) || b[2*i+1] != byte(g) {
			return false
		}
	}
	return true
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
