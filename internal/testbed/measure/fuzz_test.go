package measure_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// What Result reads it writes in a form that reads the same.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"format":1,"elapsed_s":2.5,"requests":10,"latency":{"count":3,"buckets":[[1000447,2],[2000895,1]]}}`))
	f.Add([]byte(`{"format":1,"processes":[{"name":"lb","cpu_s":1e300}],"samples":[{"at_s":-1}],"events":[{"what":"x"}]}`))
	f.Add([]byte(`{"format":1,"latency":{"count":1,"over_range":9,"buckets":[[9223372036854775807,1]]}}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second measure.Result
		if json.Unmarshal(data, &first) != nil {
			return
		}
		once, err := json.Marshal(&first)
		if err != nil {
			return // a year beyond 9999
		}
		if err := json.Unmarshal(once, &second); err != nil {
			t.Fatalf("cannot read what it wrote: %v\n%s", err, once)
		}
		if first.Latency != nil {
			a, _ := json.Marshal(first.Latency)
			b, _ := json.Marshal(second.Latency)
			if !bytes.Equal(a, b) {
				t.Fatalf("written %s\nread    %s", a, b)
			}
		}
		_ = second.CPUPerRequest("lb")
	})
}
