package addresstext

import "testing"

func TestRemedies(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.300":         `"192.0.2.300" is not an address; write one`,
		"[2001:db8::1]":       `"[2001:db8::1]" is not an address; write 2001:db8::1, without brackets`,
		"192.0.2.1:80":        `"192.0.2.1:80" is not an address; write 192.0.2.1 here, and 80 as the port, which is a key of its own`,
		"[2001:db8::1]:443":   `"[2001:db8::1]:443" is not an address; write 2001:db8::1 here, and 443 as the port, which is a key of its own`,
		"fe80::1%eth0":        `"fe80::1%eth0" is not an address; write it without the zone %eth0`,
		"server1.example":     `"server1.example" is not an address; names are not looked up: write one`,
		"tcp://192.0.2.10:80": `"tcp://192.0.2.10:80" is not an address; write the address alone, without protocol and port`,
		"":                    `"" is not an address; write one`,
	} {
		if got := Error("an address", text, "write one").Error(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
