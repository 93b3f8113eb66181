package control

import (
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkReceiveOneOfMany receives documents as the operator writes them for a thousand services of ten backends, each with one
// backend more or less than the one before.
func BenchmarkReceiveOneOfMany(b *testing.B) {
	type object = map[string]any
	document := func(n int) []byte {
		var services []object
		for i := range 1000 {
			var backends []object
			for j := range 10 {
				if j < 9 || n%2 == 0 || i != n%1000 {
					backends = append(backends, object{"name": fmt.Sprintf("g%04d-6d5f7c9b8d-%05d", i, j), "address": fmt.Sprintf("10.%d.%d.%d", 128+i>>8, i%256, 1+j), "port": 8080, "weight": 10000})
				}
			}
			vip := object{"address": fmt.Sprintf("198.18.%d.%d", 1+i>>8, i%256), "protocol": "udp", "port": 5300}
			services = append(services, object{"name": fmt.Sprintf("bench.g%04d.5300-udp", i), "mode": "nat", "maglev_size": 4093, "vips": []object{vip}, "backends": backends})
		}
		text, err := json.Marshal(object{"services": services})
		if err != nil {
			b.Fatal(err)
		}
		return text
	}
	texts := [2][]byte{document(0), document(1)}
	loop := New(&memory{}, Options{})
	var before, after unix.Rusage
	n := 0
	receive := func() {
		if _, err := loop.Receive("test", texts[n%2]); err != nil {
			b.Fatal(err)
		}
		n++
	}
	receive()
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		receive()
	}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/1e6/float64(b.N), "cpu-ms/op")
}
