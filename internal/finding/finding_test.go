package finding_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/weir-lb/weir/internal/finding"
)

// The JSON is that of every doctor since the first version, and can be read again.
func TestFindingsAsJSON(t *testing.T) {
	all := []finding.Finding{
		{Check: "lro", Level: finding.OK, What: "off"},
		{Check: "open files of a process", Level: finding.Fail, Have: 1024, Need: 60500, What: "too few", Remedy: "ulimit -Hn 60500"},
	}
	text, err := json.Marshal(all)
	want := `[{"check":"lro","level":"ok","what":"off"},` +
		`{"check":"open files of a process","level":"fail","have":1024,"need":60500,"what":"too few","cure":"ulimit -Hn 60500"}]`
	if err != nil || string(text) != want {
		t.Errorf("%s: %v, want %s", text, err, want)
	}
	var again []finding.Finding
	if err := json.Unmarshal(text, &again); err != nil || len(again) != 2 || again[0] != all[0] || again[1] != all[1] {
		t.Errorf("%+v: %v", again, err)
	}
	if json.Unmarshal([]byte(`{"level":"bad"}`), new(finding.Finding)) == nil {
		t.Error("an unknown level was read")
	}
	if finding.Worst(all) != finding.Fail || finding.Worst(all[:1]) != finding.OK || finding.Worst(nil) != finding.OK {
		t.Error("wrong worst level")
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	err := finding.Print(&out, []finding.Finding{{Check: "lro", Level: finding.Warn, What: "eth0 merges", Remedy: "ethtool -K eth0 lro off"}})
	want := "LEVEL  CHECK  FINDING\nwarn   lro    eth0 merges\n              remedy: ethtool -K eth0 lro off\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, &out)
	}
}
