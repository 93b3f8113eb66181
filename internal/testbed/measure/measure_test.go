package measure_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

func TestQuantilesAreWithinAThousandthOfTheSortedValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	latency := measure.NewLatency()
	values := make([]time.Duration, 0, 100_000)
	for range cap(values) {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Millisecond))
		values = append(values, d)
		latency.Record(d)
	}
	slices.Sort(values)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		want := values[int(q*float64(len(values)))-1]
		got := latency.Quantile(q)
		if diff := (got - want).Abs(); diff > want/500+128 {
			t.Errorf("quantile %v is %v, sorted values say %v", q, got, want)
		}
	}
	if latency.Count() != 100_000 || latency.Over() != 0 {
		t.Errorf("count %d, over %d", latency.Count(), latency.Over())
	}
}

func TestRecordBoundsWhatItCannotHold(t *testing.T) {
	latency := measure.NewLatency()
	if latency.Quantile(0.5) != 0 || latency.Min() != 0 || latency.Max() != 0 || latency.Mean() != 0 {
		t.Error("an empty histogram has values")
	}
	latency.Record(-time.Second)
	latency.Record(24 * time.Hour)
	if latency.Count() != 2 || latency.Over() != 1 {
		t.Errorf("count %d, over %d; want 2 and 1", latency.Count(), latency.Over())
	}
	if got := latency.Max(); got < measure.Longest || got > measure.Longest+measure.Longest/500 {
		t.Errorf("longest is %v", got)
	}
	latency.Reset()
	if latency.Count() != 0 || latency.Over() != 0 {
		t.Error("reset left something")
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	latency := measure.NewLatency()
	d := time.Microsecond
	if n := testing.AllocsPerRun(1000, func() { latency.Record(d); d += 7919 }); n != 0 {
		t.Errorf("%v allocations per value", n)
	}
}

func TestMergeOfWorkersEqualsOneHistogram(t *testing.T) {
	whole, merged := measure.NewLatency(), measure.NewLatency()
	for worker := range 4 {
		own := measure.NewLatency()
		for i := range 1000 {
			d := time.Duration(worker*1000+i) * 10 * time.Microsecond
			own.Record(d)
			whole.Record(d)
		}
		own.Record(time.Hour)
		whole.Record(time.Hour)
		// Through JSON, as between processes.
		text, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		var read measure.Latency
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		merged.Merge(&read)
	}
	a, _ := json.Marshal(whole)
	b, _ := json.Marshal(merged)
	if string(a) != string(b) {
		t.Errorf("merged through JSON:\n%s\nrecorded at once:\n%s", b, a)
	}
}

func TestLatencyRefusesBadJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"count":1,"buckets":[[5,-1]]}`:                        "buckets[0]",
		`{"count":1,"buckets":[[-5,1]]}`:                        "buckets[0]",
		`{"count":2,"buckets":[[5,1]]}`:                         "count is 2, the buckets hold 1",
		`{"count":1,"buckets":[[5,9223372036854775807],[6,1]]}`: "buckets[1]",
	} {
		var latency measure.Latency
		if err := json.Unmarshal([]byte(text), &latency); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestResultSurvivesItsJSON(t *testing.T) {
	latency := measure.NewLatency()
	latency.RecordN(1500*time.Microsecond, 1000)
	result := &measure.Result{
		Scenario: "udp-echo", Path: "weir nat", Parameters: map[string]string{"clients": "200"},
		Machine: measure.Machine{Cores: 2, Kernel: "6.18"}, Started: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC),
		Elapsed: 2500 * time.Millisecond, Requests: 1000, Errors: 3, Bytes: 64000, Latency: latency,
		Processes: []measure.Process{{Name: "balancer", CPU: 8 * time.Millisecond, PeakBytes: 1 << 20}},
		Figures:   []measure.Figure{{Name: "forwarded", Value: 0.67, Unit: "share"}},
		Samples:   []measure.Sample{{At: time.Second, Rate: 400, P50: 1500 * time.Microsecond, P99: 2 * time.Millisecond, Max: 3 * time.Millisecond, Errors: 1}},
		Events:    []measure.Event{{At: 1200 * time.Millisecond, What: "NAT cleared"}},
	}
	if got := result.Rate(); got != 400 {
		t.Errorf("rate %v", got)
	}
	if got := result.CPUPerRequest("balancer"); got != 8*time.Microsecond {
		t.Errorf("CPU per request %v", got)
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"format":1`, `"elapsed_s":2.5`, `"requests_per_s":400`, `"cpu_per_request_us":8`, `"at_s":1.2`} {
		if !strings.Contains(string(text), key) {
			t.Errorf("no %s in\n%s", key, text)
		}
	}
	var read measure.Result
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&read)
	if err != nil || string(again) != string(text) {
		t.Errorf("%v\nwritten %s\nread    %s", err, text, again)
	}
	read.Latency, result.Latency = nil, nil
	if !reflect.DeepEqual(&read, result) {
		t.Errorf("written %+v\nread    %+v", result, read)
	}
	if err := json.Unmarshal([]byte(`{"format":9}`), &read); err == nil || !strings.Contains(err.Error(), "format 9") {
		t.Errorf("a result of another format: %v", err)
	}
}
