package handshake

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// A list of server names that ends too early made parsing loop for ever: one datagram stopped a worker.
func TestParsingEnds(t *testing.T) {
	for _, list := range [][]byte{{0}, {0, 0}, {0, 0, 9, 'x'}, {1, 0xff}} {
		data := appendVector16(nil, list)
		c := cursor{b: data}
		done := make(chan bool, 1)
		go func() {
			var h hello
			h.parseServerName(&c, true)
			done <- c.bad
		}()
		select {
		case bad := <-done:
			if !bad {
				t.Errorf("%x is taken", list)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%x: parsing does not end", list)
		}
	}
}

// A known extension comes once.
func TestExtensionsComeOnce(t *testing.T) {
	h := hello{version: version12, random: make([]byte, randomLength), suites: []byte{0xc0, 0xa8}, methods: []byte{0}, extendedMaster: true}
	body := h.appendClientHello(nil)
	var parsed hello
	if !parseClientHello(body, &parsed) || !parsed.extendedMaster {
		t.Fatal("a good hello is refused")
	}
	twice := append(body[:len(body)-6:len(body)-6], 0, 8, 0, extExtendedMasterSecret, 0, 0, 0, extExtendedMasterSecret, 0, 0)
	if parseClientHello(twice, &parsed) {
		t.Error("an extension that comes twice is taken")
	}
}

// A client takes nothing that it has not offered.
func TestClientChecksTheServerHello(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(h *hello)
		ok   bool
	}{
		"good":                       {func(*hello) {}, true},
		"another suite":              {func(h *hello) { h.suite = 0xc0a4 }, false},
		"another version":            {func(h *hello) { h.version = version10 }, false},
		"compression":                {func(h *hello) { h.method = 1 }, false},
		"no extended master secret":  {func(h *hello) { h.extendedMaster = false }, false},
		"a connection id":            {func(h *hello) { h.hasCID = true }, false},
		"return routability":         {func(h *hello) { h.hasCID, h.routability = true, true }, false},
		"fragment length":            {func(h *hello) { h.maxFragment = 2 }, true},
		"another fragment length":    {func(h *hello) { h.maxFragment = 1 }, false},
		"both limits":                {func(h *hello) { h.maxFragment, h.recordLimit = 2, 100 }, false},
		"record limit":               {func(h *hello) { h.recordLimit = 100 }, true},
		"certificate type of server": {func(h *hello) { h.serverTypes = []byte{typeRawKey} }, false},
		"certificate type of client": {func(h *hello) { h.clientTypes = []byte{typeRawKey} }, false},
		"a ticket":                   {func(h *hello) { h.hasTicket = true }, false},
		"a name":                     {func(h *hello) { h.hasServerName = true }, false},
		"a session id":               {func(h *hello) { h.sessionID = make([]byte, 32) }, true},
	} {
		c, err := NewClient(ClientConfig{
			Config: Config{Suites: []record.Suite{record.PSKWithAES128CCM8}, RequireExtendedMaster: true},
			Key:    []byte("key"), MaxFragmentLength: 1024, RecordSizeLimit: 512,
		})
		if err != nil {
			t.Fatal(err)
		}
		h := &hello{version: version12, random: make([]byte, randomLength), suite: uint16(record.PSKWithAES128CCM8), extendedMaster: true}
		test.edit(h)
		if err := c.serverHello(h.appendServerHello(nil)); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
