package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNamesAreShortAndStable(t *testing.T) {
	for message, want := range map[string]string{
		"the serving process ended; another one starts with its sockets": "serving_process_ended",
		"upgrade: the serving process hands over":                        "upgrade_serving_process_hands_over",
		"operator action":               "operator_action",
		"detached: no longer requested": "detached_no_longer_requested",
		"STUNner's HTTP server":         "stunner_s_http_server",
		"tables found in the pins keep their limits and never all the others": "tables_found_in_pins_keep_limits",
	} {
		if got := Name(message); got != want {
			t.Errorf("%q: %s, want %s", message, got, want)
		}
	}
}

func TestTheRingKeepsTheNewest(t *testing.T) {
	var written bytes.Buffer
	h, ring := Keep(Named(slog.NewJSONHandler(&written, nil)))
	log := slog.New(h)
	if RingOf(log) != ring || RingOf(slog.New(slog.DiscardHandler)) != nil {
		t.Fatal("the logger does not lead to its ring")
	}
	log.Debug("below the level of the log")
	if n := len(ring.List(0).Events); n != 0 {
		t.Fatalf("%d events below the level", n)
	}
	for i := range maxEvents + 10 {
		log.With("scope", "x").WithGroup("g").Info("a backend is silent", "i", i)
	}
	list := ring.List(0)
	if len(list.Events) != maxEvents || list.Forgotten != 10 {
		t.Fatalf("%d events, %d forgotten", len(list.Events), list.Forgotten)
	}
	for i, e := range list.Events {
		if e.Number != uint64(i+11) || e.Attributes["g.i"] != fmt.Sprint(i+10) || e.Attributes["scope"] != "x" || e.Name != "backend_silent" || e.Level != "INFO" {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	if newest := ring.List(maxEvents + 9).Events; len(newest) != 1 || newest[0].Number != maxEvents+10 {
		t.Errorf("after the second newest: %+v", newest)
	}
	var line struct{ G struct{ Event string } }
	first, _, _ := strings.Cut(written.String(), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.G.Event != "backend_silent" {
		t.Errorf("%s: %v", first, err)
	}
}

func TestARecordIsBoundedAndMayNameItself(t *testing.T) {
	var written bytes.Buffer
	h, ring := Keep(Named(slog.NewTextHandler(&written, nil)))
	args := []any{"event", "named"}
	for i := range 40 {
		args = append(args, fmt.Sprint("key", i), strings.Repeat("ä", 1000))
	}
	slog.New(h).Warn(strings.Repeat("ö", 1000), args...)
	e := ring.List(0).Events[0]
	if e.Name != "named" || len(e.Attributes) != maxAttributes || len(e.Message) > maxText+3 || strings.Count(written.String(), "event=") != 1 {
		t.Errorf("%s: %d attributes, %d bytes", e.Name, len(e.Attributes), len(e.Message))
	}
	for key, value := range e.Attributes {
		if len(value) > maxText+3 || !utf8.ValidString(value) {
			t.Errorf("%s: %q", key, value)
		}
	}
}
