package maglev

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
)

// The tables of earlier releases: another one would move the flows of every tier that is upgraded balancer by balancer.
func TestTablesAreThoseOfEarlierReleases(t *testing.T) {
	for _, c := range []struct {
		entries []Entry
		size    int
		want    string
	}{
		{[]Entry{{"a", 1}, {"b", 1}, {"c", 1}}, 251, "9f9adbed8c427fa2"},
		{[]Entry{{"backend-1", 100}, {"backend-2", 250}, {"a-name-of-more-than-sixteen-bytes", 1}, {"", 7}, {"none", 0}}, 1009, "38216cff2a7ab976"},
		{[]Entry{{"a", 3}, {"b", 2}}, 256, "f12f41d7777e2bf3"}, // not prime: the permutations share factors with the size
		{[]Entry{{"a", 3}, {"b", 2}}, 2, "af5570f5a1810b7a"},
		{[]Entry{{"a", 3}, {"b", 2}}, 1, "df3f619804a92fdb"},
	} {
		h := sha256.New()
		for _, owner := range Build(c.entries, c.size) {
			_ = binary.Write(h, binary.BigEndian, owner)
		}
		if got := fmt.Sprintf("%x", h.Sum(nil)[:8]); got != c.want {
			t.Errorf("%v, %d slots: %s, want %s", c.entries, c.size, got, c.want)
		}
	}
	// The finaliser is that of SplitMix64, whose first number from seed 0 this is.
	if got := mix("", 0x9e3779b97f4a7c15); got != 0xe220a8397b1dcdaf {
		t.Errorf("finaliser gives %#x", got)
	}
}
