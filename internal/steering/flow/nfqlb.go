package flow

import "encoding/binary"

// The hashes of nfqlb, for a tier that also has such balancers: djb2 (h·33 + byte from 5381, 32 bits) over 40 bytes. The
// bytes are source, destination, two bytes that are zero except for pings, the protocol little-endian, and the ports in
// network order. A ping has its identifier in those two bytes, and no ports.

// NFQLBFlow returns the hash of the whole key.
func NFQLBFlow(k Key) uint32 {
	var b [keyBytes]byte
	copy(b[0:16], k.Src[:])
	copy(b[16:32], k.Dst[:])
	binary.LittleEndian.PutUint16(b[34:], uint16(k.Proto))
	if k.Proto == ProtoICMP || k.Proto == ProtoICMPv6 {
		binary.BigEndian.PutUint16(b[32:], k.SrcPort)
	} else {
		binary.BigEndian.PutUint16(b[36:], k.SrcPort)
		binary.BigEndian.PutUint16(b[38:], k.DstPort)
	}
	return djb2(5381, b[:])
}

// NFQLBPorts returns the hash of the ports alone, which nfqlb uses for SCTP.
func NFQLBPorts(k Key) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint16(b[0:], k.SrcPort)
	binary.BigEndian.PutUint16(b[2:], k.DstPort)
	return djb2(5381, b[:])
}

// NFQLBAddresses returns the hash of the addresses, which nfqlb uses for
// fragments in a tier.
func NFQLBAddresses(src, dst [16]byte) uint32 {
	return djb2(djb2(5381, src[:]), dst[:])
}

func djb2(h uint32, b []byte) uint32 {
	for _, c := range b {
		h = h*33 + uint32(c)
	}
	return h
}
