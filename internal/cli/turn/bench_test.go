package turn

import "testing"

func TestBitsAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]float64{"100000": 100000, "100k": 100e3, "10M": 10e6, "10m": 10e6, "1.5G": 1.5e9} {
		if got, err := parseBits(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "k", "10X", "NaN", "Inf", "1kk"} {
		if got, err := parseBits(text); err == nil {
			t.Errorf("%q became %v", text, got)
		}
	}
}
