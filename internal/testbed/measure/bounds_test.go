package measure

import (
	"encoding/json"
	"testing"
	"time"
)

// Without a duration all figures are 0; with some they are those of a short list.
func TestLatencyOfFewDurations(t *testing.T) {
	l := NewLatency()
	if l.Count() != 0 || l.Min() != 0 || l.Max() != 0 || l.Mean() != 0 || l.Quantile(0.5) != 0 {
		t.Errorf("an empty histogram has %v, %v, %v, %v", l.Min(), l.Max(), l.Mean(), l.Quantile(0.5))
	}
	for _, ms := range []time.Duration{10, 20, 60} {
		l.Record(ms * time.Millisecond)
	}
	curve := l.Curve()
	if len(curve) == 0 {
		t.Fatal("no curve")
	}
	for _, f := range []struct {
		name string
		got  time.Duration
		ms   float64
	}{
		{"min", l.Min(), 10},
		{"max", l.Max(), 60},
		{"mean", l.Mean(), 30},
		{"median", l.Quantile(0.5), 20},
		{"share above 1", l.Quantile(2), 60},
		{"end of the curve", curve[len(curve)-1].D, 60},
	} {
		if got := Millis(f.got); got < f.ms*0.999 || got > f.ms*1.001 {
			t.Errorf("%s is %v, want %v ms within a thousandth", f.name, f.got, f.ms)
		}
	}
}

// Each bucket of the JSON form has a duration of at least 0 and a count of at least 1; broken JSON is an error.
func TestLatencyBuckets(t *testing.T) {
	for text, good := range map[string]bool{
		`{"count":1,"buckets":[[0,1]]}`:                         true,
		`{"count":1,"buckets":[[-1,1]]}`:                        false,
		`{"count":0,"buckets":[[5,0]]}`:                         false,
		`{"count":1,"buckets":[[5,1],[6,-1]]}`:                  false,
		`{"count":2,"buckets":[[5,1]]}`:                         false,
		`{"count":1,"buckets":"none"}`:                          false,
		`{"count":1,"buckets":[[5,9223372036854775807],[6,1]]}`: false,
	} {
		if err := json.Unmarshal([]byte(text), NewLatency()); (err == nil) != good {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func TestRates(t *testing.T) {
	r := Result{Requests: 300}
	if r.Rate() != 0 {
		t.Errorf("%v requests/s in no time", r.Rate())
	}
	r.Elapsed = 2 * time.Second
	r.Processes = []Process{{Name: "server", CPU: 600 * time.Microsecond}}
	if r.Rate() != 150 || r.CPUPerRequest("server") != 2*time.Microsecond || r.CPUPerRequest("client") != 0 {
		t.Errorf("%v requests/s, %v a request", r.Rate(), r.CPUPerRequest("server"))
	}
	if r.Requests = 0; r.CPUPerRequest("server") != 0 || r.Rate() != 0 {
		t.Errorf("%v for no request", r.CPUPerRequest("server"))
	}
}
