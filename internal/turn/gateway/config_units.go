package gateway

import (
	"fmt"
	"strconv"
	"strings"
)

// Contains reports whether the port is in the range.
func (r PortRange) Contains(port uint16) bool { return port >= r.Min && port <= r.Max }

// Count returns the number of ports in the range.
func (r PortRange) Count() int { return int(r.Max) - int(r.Min) + 1 }

func (r PortRange) String() string {
	if r.Min == r.Max {
		return strconv.Itoa(int(r.Min))
	}
	return fmt.Sprintf("%d-%d", r.Min, r.Max)
}

// MarshalText writes MIN-MAX.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads MIN-MAX or one port.
func (r *PortRange) UnmarshalText(text []byte) error {
	low, high, isRange := strings.Cut(string(text), "-")
	if !isRange {
		high = low
	}
	from, err := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	if err != nil || err2 != nil || from == 0 || to < from {
		return fmt.Errorf("no port range %q; write two ports from 1 to 65535 such as 49152-65535", text)
	}
	r.Min, r.Max = uint16(from), uint16(to)
	return nil
}

// parseBytes reads a number with a unit. Units are factors of 1000, those with an i factors of 1024; a bit is an eighth of a byte.
func parseBytes(text string) (uint64, bool) {
	digits := strings.TrimRight(text, "kKMGiBbt")
	unit := text[len(digits):]
	bits := strings.HasSuffix(unit, "bit")
	prefix, ok := strings.CutSuffix(unit, "bit")
	if !ok {
		prefix, ok = strings.CutSuffix(unit, "B")
	}
	factor, known := map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "ki": 1 << 10, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}[prefix]
	value, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || !known || err != nil {
		return 0, false
	}
	if bits {
		factor /= 8
	}
	value *= factor
	if !(value >= 1 && value <= 1<<50) {
		return 0, false
	}
	return uint64(value), true
}

// UnmarshalText reads a number with its unit: 64kB, 1MB, 2MiB.
func (s *ByteSize) UnmarshalText(text []byte) error {
	value, ok := parseBytes(string(text))
	if !ok {
		return fmt.Errorf("no size %q; write a number with its unit, such as 64kB or 1MB", text)
	}
	*s = ByteSize(value)
	return nil
}

// UnmarshalText reads a number with its unit per second: 500kB/s, 2MB/s, 16Mbit/s.
func (r *ByteRate) UnmarshalText(text []byte) error {
	amount, perSecond := strings.CutSuffix(string(text), "/s")
	value, ok := parseBytes(amount)
	if !ok || !perSecond {
		return fmt.Errorf("no rate %q; write a number with its unit, such as 500kB/s, 2MB/s or 16Mbit/s", text)
	}
	*r = ByteRate(value)
	return nil
}

// MarshalText writes bytes.
func (s ByteSize) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%dB", uint64(s)), nil }

// MarshalText writes bytes per second.
func (r ByteRate) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%dB/s", uint64(r)), nil }
