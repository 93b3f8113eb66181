package udpnat_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
)

// A reader of /status must not guess units: each time's key names its own.
func TestTimesInJSONNameTheirUnit(t *testing.T) {
	stats := udpnat.Stats{
		Backends: []udpnat.Backend{{Name: "a", Silent: 1500 * time.Millisecond, LastReply: 2 * time.Second}, {Name: "b", LastReply: -1}},
		Faults:   udpnat.Faults{ReorderDelay: 50 * time.Millisecond},
	}
	text, err := json.Marshal(stats.JSON())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"a"`, `"silent_s":1.5`, `"last_reply_s":2`, `"reorder_delay_ms":50`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Count(string(text), "last_reply") != 1 || strings.Contains(string(text), "_ns") {
		t.Errorf("%s", text)
	}
}
