package lb

// ByteMatch compares bytes of a transport header: header[Offset:Offset+Length] & Mask == Value, in network order.
type ByteMatch struct {
	Protocol    uint8
	Offset      int
	Length      int // 1, 2 or 4
	Mask, Value uint32
}

// UnmarshalText reads tcp[13:1] & 0x02 = 0x02; the mask may be left out.
func (m *ByteMatch) UnmarshalText(text []byte) error { return nil }
