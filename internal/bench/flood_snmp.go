package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// badChecksums counts the datagrams that the receiver's namespace refused for their checksum.
func (f *flood) badChecksums() (uint64, error) {
	var count uint64
	err := f.Receiver.Do(func() error {
		file := "/proc/thread-self/net/snmp"
		if f.At.Is6() {
			file = "/proc/thread-self/net/snmp6"
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("count wrong checksums: %w", err)
		}
		if count, err = udpChecksumErrors(string(text)); err != nil {
			return fmt.Errorf("count wrong checksums: %s: %w", file, err)
		}
		return nil
	})
	return count, err
}

// udpChecksumErrors reads UDP's InCsumErrors: the old file has a line of names and one of values, that of IPv6 a pair on
// each line.
func udpChecksumErrors(text string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "Udp6InCsumErrors":
			return strconv.ParseUint(fields[1], 10, 64)
		case len(fields) == 0 || fields[0] != "Udp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if name == "InCsumErrors" && i < len(fields) {
					return strconv.ParseUint(fields[i], 10, 64)
				}
			}
		}
	}
	return 0, fmt.Errorf("no InCsumErrors of UDP")
}
