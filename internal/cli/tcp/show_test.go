package tcp

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// Where a row is shown every few seconds only, its rates are those of all that time, not of its last second.
func TestRatesOfARowAreSinceTheRowBefore(t *testing.T) {
	var out bytes.Buffer
	p := newTCPProgress(&out)
	for i, opened := range []uint64{400, 1400} {
		p.last = time.Time{} // a row is due
		p.show(tcpscale.Report{At: p.started.Add(time.Duration(1+5*i) * time.Second), Totals: tcpscale.Totals{Opened: opened, Failed: opened / 2}})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatal(out.String())
	}
	for i, want := range []string{"400 200", "200 100"} {
		if f := strings.Fields(lines[1+i]); f[3]+" "+f[4] != want {
			t.Errorf("row %d: opened and failed %s %s, want %s\n%s", i, f[3], f[4], want, out.String())
		}
	}
}
