package snat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestSnatPlan(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2", 1, "holds     16,000 of 20,000 connections"},
		{"azure-lb --ports 8000 --connections 7000", 0, "8 nodes possible"},
		{"azure-nat --ips 1 --policy open --rate 2000 --lifetime 1s --replicas 9", 1, "977.5 new connections/s"},
		{"azure-nat --ips 1 --policy open --rate 2000 --lifetime 1s --rst 1 --replicas 9", 0, "3794.8 new connections/s"},
		{"azure-nat --ips 16 --replicas 10 --masquerade", 1, "masquerade of the client node is full at 64,512"},
		{"aws-nat --hold-fin 0s --replicas 6", 1, "holds     55,000 of 60,000"},
		{"gcp-nat --ports 64 --max-ports 4096 --connections 4096", 0, "GCP Cloud NAT, 64 to 4,096 ports per VM"},
		{"azure-lb --protocol udp --destinations 4 --destination-ips 2 --connections 3000", 1, "holds     2,048 of 3,000"},
		{"azure-lb --connections 1000", 0, "the path would hold 1,024"},
		{"azure-nat --replicas 3 --with conntrack=20000,server-files=25000", 1, "conntrack of the client node is full at 20,000"},
		{"azure-nat --for 50000 --with conntrack=20000", 0, "Azure NAT gateway  3      6         –               1"},
		{"--for 50000", 0, "Azure LB, default         49     49        1,024"},
		{"--for 1000000", 0, "AWS NAT gateway is full at 440,000"},
		{"azure-nat --for 50000 --rate 2000 --lifetime 20s", 0, "Azure NAT gateway  1      6         –               3"},
		{"azure-lb --for 50000 --ips 1 --nodes 10 --ports 8000", 1, "8 can get them"},
		{"gcp-nat --for 50000 --nodes 15 --max-ports 4096", 0, "32 to 4,096"},
		{"gcp-nat --for 500 --endpoint-independent", 0, "GCP Cloud NAT, static"},
		{"ephemeral --for 50000 --replicas 1", 0, "no NAT  1      1         –               2"},
		{"ephemeral --connections 30000", 1, "holds     28,232 of 30,000"},
		{"-c ../../../examples/snat/source-document.yaml", 0, "20 cells: 13 agree, 1 move, 0 differ, 6 predicted"},
		{"-c ../../../examples/snat/cluster.yaml", 0, "at 62 nodes"},
	} {
		out, err := clitest.Execute(t, append([]string{"snat", "plan"}, strings.Fields(c.args)...)...)
		if clitest.ExitCode(err) != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d (%v), want %d and %q in\n%s", c.args, clitest.ExitCode(err), err, c.code, c.want, out)
		}
	}
	out, _ := clitest.Execute(t, "snat", "plan", "azure-lb", "--connections", "2000", "--json")
	var plans []struct {
		Holds  int64 `json:"holds"`
		Demand int64 `json:"demand"`
		Stages []any `json:"stages"`
	}
	if err := json.Unmarshal([]byte(out), &plans); err != nil || len(plans) != 1 || plans[0].Holds != 1024 || plans[0].Demand != 2000 || len(plans[0].Stages) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	out, _ = clitest.Execute(t, "snat", "plan", "--for", "50000", "--json")
	var sizes struct {
		Connections int64 `json:"connections"`
		Ways        []struct {
			Kind     string `json:"kind"`
			Possible bool   `json:"possible"`
			Nodes    int    `json:"nodes"`
			Plan     struct {
				Ceiling int64 `json:"ceiling"`
			} `json:"plan"`
		} `json:"ways"`
	}
	if err := json.Unmarshal([]byte(out), &sizes); err != nil || sizes.Connections != 50000 || len(sizes.Ways) != 9 || !sizes.Ways[0].Possible || sizes.Ways[0].Nodes != 49 || sizes.Ways[0].Plan.Ceiling != 50176 {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := clitest.Execute(t, "snat", "rules"); err != nil || !strings.Contains(out, "64,512") || !strings.Contains(out, "2026-11-22") {
		t.Errorf("%v: %s", err, out)
	}
}

// A file whose measured figure is another fails, and says which.
func TestSnatPlanTellsADifference(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("scenarios: [{name: a, expect: 900, path: [{kind: azure-lb}]}, {name: b, expect_nodes: 8, path: [{kind: azure-lb, ports: 8000, ips: 2}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := clitest.Execute(t, "snat", "plan", "-c", file)
	if clitest.ExitCode(err) != 1 || !strings.Contains(out, "2 differ") || !strings.Contains(out, "16 nodes are possible, not 8") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSnatUsage(t *testing.T) {
	for args, want := range map[string]string{
		"plan":                                                        "write either a kind",
		"plan azure-lb -c x.yaml":                                     "write either a kind",
		"plan nat":                                                    `there is no stage "nat"`,
		"plan azure-lb --ports 7":                                     "--ports: 7 is no multiple of 8",
		"plan azure-lb --scenario a":                                  "--scenario names one of a file",
		"plan azure-lb --nodes 0":                                     "--nodes: 0 is none",
		"simulate azure-lb --rate 0":                                  "--rate: 0 is none",
		"plan azure-lb --with nat":                                    `--with: "nat" is no stage of a host`,
		"plan azure-lb --with memory":                                 `--with: "memory" has no limit`,
		"plan azure-lb --with files=many":                             `--with: "files=many" has no limit`,
		"plan --for 0":                                                "--for: 0 is not between",
		"plan nat --for 5":                                            `there is no stage "nat"`,
		"plan azure-lb --for 5 --ports 7":                             "--ports: 7 is no multiple of 8",
		"plan --for 5 -c x.yaml":                                      "--for: a file says",
		"plan azure-lb --protocol sctp":                               "--protocol:",
		"plan azure-lb --destination-ips 2":                           "--destination-ips: 2 is not between 1 and 1",
		"simulate azure-lb --balance odd":                             "--balance:",
		"plan -c none.yaml":                                           "none.yaml",
		"plan azure-nat --rst 2":                                      "--rst: the shares",
		"plan gcp-nat --max-ports 1000":                               "--max-ports: dynamic allocation",
		"plan -c ../../../examples/snat/churn.yaml --nodes 3":         "--nodes: the file says it",
		"simulate -c ../../../examples/snat/churn.yaml":               "has 4 scenarios; name one: closed by FIN",
		"simulate -c ../../../examples/snat/churn.yaml --scenario x":  `none of the name "x"`,
		"simulate azure-lb --duration 1ms":                            "--duration: 1ms is not between",
		"plan -c ../../../internal/snat/testdata/bad/ports-of-8.yaml": "ports-of-8.yaml:2:",
	} {
		if _, err := clitest.Execute(t, append([]string{"snat"}, strings.Fields(args)...)...); clitest.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestSnatSimulate(t *testing.T) {
	page := filepath.Join(t.TempDir(), "saw.html")
	out, err := clitest.Execute(t, "snat", "simulate", "azure-lb", "--nodes", "2", "--ips", "2", "--ports", "8000", "--replicas", "2", "--policy", "original", "--duration", "30m", "--json", "--report", page)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Run struct {
			Peak   int64 `json:"peak"`
			Lowest int64 `json:"lowest"`
			Series struct {
				Held []int64 `json:"held"`
			} `json:"series"`
		} `json:"run"`
		Plan struct {
			Holds int64 `json:"holds"`
		} `json:"plan"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Run.Peak != 16000 || got.Run.Lowest != 0 || got.Plan.Holds != 16000 || len(got.Run.Series.Held) < 500 {
		t.Errorf("%v: %.300s", err, out)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "The testers move between 0 and 16,000") || !strings.Contains(string(text), "<svg") {
		t.Errorf("report: %v", err)
	}
	out, err = clitest.Execute(t, "snat", "simulate", "-c", "../../../examples/snat/churn.yaml", "--scenario", "neither side closes", "--duration", "10m")
	if err != nil || !strings.Contains(out, "connects failed") || !strings.Contains(out, "600 s") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSnatLabRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"lab nowhere.yaml": "nowhere.yaml", "lab --only nothing-like-this": "no scenario has", "lab --nat iptables": "write kernel or weir", "lab --nat": "needs an argument",
	} {
		out, err := clitest.Execute(t, append([]string{"snat"}, strings.Fields(args)...)...)
		if clitest.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error()+out, strings.ReplaceAll(want, "no scenario has", "no scenario has")) {
			t.Errorf("%s: exit code %d, %v\n%s", args, clitest.ExitCode(err), err, out)
		}
	}
}
