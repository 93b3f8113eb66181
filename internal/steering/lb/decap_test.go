package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func prefixes(texts ...string) (list []AddressPrefix) {
	for _, text := range texts {
		list = append(list, prefix(text))
	}
	return list
}

// Which tunnels end at a balancer is whole and bounded.
func TestDecapIsChecked(t *testing.T) {
	many := make([]AddressPrefix, 257)
	for i := range many {
		many[i] = prefix(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
	}
	for _, c := range []struct {
		decap      DecapSpec
		path, what string
	}{
		{DecapSpec{prefixes("10.2.0.2/32"), nil}, "decap.from", "any client"},
		{DecapSpec{nil, prefixes("10.2.0.1/32")}, "decap.addresses", "no address"},
		{DecapSpec{prefixes("10.2.0.2/32"), prefixes("2001:db8::/64")}, "decap.from", "different families"},
		{DecapSpec{prefixes("10.2.0.2/32", "10.2.0.2/32"), prefixes("10.2.0.1/32")}, "decap.addresses[1]", "twice"},
		{DecapSpec{prefixes("10.2.0.2/32"), many}, "decap.from", "257 prefixes, at most 256"},
	} {
		spec := Spec{Services: []ServiceSpec{}, Decap: &c.decap}
		_, err := Compile(spec, nil, AllCaps())
		if wrong := (*Error)(nil); !errors.As(err, &wrong) || wrong.Path != c.path || !strings.Contains(wrong.Error(), c.what) {
			t.Errorf("%v: %v, want %s: %s", c.decap, err, c.path, c.what)
		}
	}
	spec := Spec{Services: []ServiceSpec{}, Decap: &DecapSpec{prefixes("2001:db8::2/128", "10.2.0.2/32"), prefixes("10.2.0.0/24")}}
	want := &Decap{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.2.0.2/32"), netip.MustParsePrefix("2001:db8::2/128")},
		From:      []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24")},
	}
	if s := compile(t, spec, nil); !reflect.DeepEqual(s.Decap, want) {
		t.Errorf("compiled to %v", s.Decap)
	}
	caps := AllCaps()
	caps.Decap, caps.Name = false, "udp"
	if _, err := Compile(spec, nil, caps); err == nil || !strings.Contains(err.Error(), "data path udp does not take tunnels off") {
		t.Errorf("a data path without tunnels: %v", err)
	}
}
