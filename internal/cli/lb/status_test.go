package lb

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
)

// Backends whose probes fail are not up, also while fail-open uses them.
func TestStatusCountsFailingBackendsAsDown(t *testing.T) {
	var status v1.LBStatus
	status.Services = []v1.ServiceStatus{
		{Name: "open", State: "fail_open", Backends: []v1.BackendStatus{{Share: 0.5}, {Share: 0.5}}},
		{Name: "half", State: "up", Backends: []v1.BackendStatus{{Share: 1}, {}}},
	}
	var out strings.Builder
	if err := printStatus(&out, &status); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 of 2 (fail open)", "1 of 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
