package udpnat_test

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestConsoleInfo(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	f.client().exchange("x")
	f.client().exchange("x")
	want := "2 NAT entries, reverse address update disabled.\n1 destinations.\nDestination: " + f.backends[0].name + ", usage: 2"
	for _, line := range []string{"", "info", "  INFO "} {
		if got := f.do(line); got != want {
			t.Fatalf("%q says\n%s\nwant\n%s", line, got, want)
		}
	}
}

func TestConsoleClear(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	for range 10 {
		f.client().exchange("x")
	}
	if got := f.do("clear 4"); got != "4 - NAT entries dropped." {
		t.Fatal(got)
	}
	if got := f.do("clear 100"); got != "6 - NAT entries dropped." {
		t.Fatal(got)
	}
	if got := f.do("clear"); got != "0 - NAT entries dropped." {
		t.Fatal(got)
	}
}

func TestConsoleReassign(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	c := f.client()
	c.exchange("x")
	before := f.backends[0].lastFrom()
	if got := f.do("reassign"); got != "1 - NAT entries reassigned." {
		t.Fatal(got)
	}
	c.exchange("x")
	if f.backends[0].lastFrom() == before {
		t.Fatal("the outgoing address stayed")
	}
	if f.counters().Opened != 1 {
		t.Fatal("the entry did not stay")
	}
}

func TestConsoleAddRemoveDrain(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	c := f.client()
	c.exchange("x")
	extra := newBackend(t, 7)
	if got := f.do("add " + extra.name); got != "add destination "+extra.name+"." {
		t.Fatal(got)
	}
	if got := c.exchange("stays"); got != 0 {
		t.Fatalf("adding moved a client to %d", got)
	}
	f.onBackend(7)
	if _, err := f.console.Execute(t.Context(), "add "+extra.name); err == nil {
		t.Fatal("added twice")
	}
	if _, err := f.console.Execute(t.Context(), "add nonsense"); err == nil {
		t.Fatal("added nonsense")
	}

	f.do("drain " + f.backends[0].name)
	if got := c.exchange("old ones stay"); got != 0 {
		t.Fatalf("draining moved a client to %d", got)
	}
	for range 20 {
		if f.client().exchange("new") != 7 {
			t.Fatal("a new client on a draining destination")
		}
	}
	if info := f.do("info"); !strings.Contains(info, "draining") {
		t.Fatal(info)
	}
	f.do("drain " + f.backends[0].name + " off")
	f.onBackend(0)

	if got := f.do("remove " + f.backends[0].name); got != "remove destination "+f.backends[0].name+"." {
		t.Fatal(got)
	}
	if got := c.exchange("moved"); got != 7 {
		t.Fatalf("removed destination %d answered", got)
	}
	if _, err := f.console.Execute(t.Context(), "remove "+extra.name); err == nil {
		t.Fatal("removed the last one")
	}
	if info := f.do("info"); strings.Contains(info, f.backends[0].name) && !strings.Contains(info, "down") {
		t.Fatal(info)
	}
}

func TestConsoleErrorsAndHelp(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	for _, bad := range []string{
		"nonsense", "clear x", "clear 0", "clear -1", "clear 1 2", "reverse", "reverse maybe", "add", "remove 1.2.3.4:5",
		"drain", "drain nobody", "entries x", "info now", "exit now", "faults x",
	} {
		if got, err := f.console.Execute(t.Context(), bad); err == nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
	if _, err := f.console.Execute(t.Context(), "add "+f.backends[0].name); err == nil || !strings.Contains(err.Error(), "is a destination already") {
		t.Errorf("added twice: %v", err)
	}
	help := f.do("?")
	for _, word := range []string{"help", "info", "clear [n]", "reassign", "rebalance", "add <host:port>", "remove <host:port>", "reverse on|off", "drain", "exit"} {
		if !strings.Contains(help, word) {
			t.Errorf("help lacks %q", word)
		}
	}
	if got := f.do("entries"); got != "no NAT entries." {
		t.Error(got)
	}
	f.client().exchange("x")
	if got := f.do("entries 5"); !strings.Contains(got, f.backends[0].name) {
		t.Error(got)
	}
	if got := f.do("stats"); !strings.Contains(got, "forwarded") {
		t.Error(got)
	}
	if f.do("quit"); !f.exited.Load() {
		t.Error("quit did not exit")
	}
	fixed := udpnat.NewConsole(f.datapath, f.intent, udpnat.ConsoleOptions{})
	for _, line := range []string{"exit", "add 127.0.0.1:1", "remove " + f.backends[0].name} {
		if got, err := fixed.Execute(t.Context(), line); err == nil {
			t.Errorf("a configured balancer took %s: %s", line, got)
		}
	}
}

// The console from a pipe: one answer for each line, errors among them, and the end of the input ends only Serve.
func TestConsoleServe(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	var out bytes.Buffer
	if err := f.console.Serve(t.Context(), strings.NewReader("clear\nnonsense\nreverse on"), &out); err != nil {
		t.Fatal(err)
	}
	want := "0 - NAT entries dropped.\nerror: no command \"nonsense\"; type help\nreverse address update enabled.\n"
	if out.String() != want {
		t.Fatalf("got %q", out.String())
	}
	if err := f.console.Serve(t.Context(), strings.NewReader(strings.Repeat("x", 10000)), &out); err == nil {
		t.Fatal("an endless line")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.console.Serve(ctx, strings.NewReader("info\n"), &out); err == nil {
		t.Fatal("served after the end")
	}
	f.client().exchange("goes on")
}

func TestConsoleComplete(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	for line, want := range map[string]string{
		"cl": "clear ", "re": "re", "reb": "rebalance ", "reverse o": "reverse o", "reverse of": "reverse off ",
		"remove ": "remove " + f.backends[0].name + " ", "drain 127": "drain " + f.backends[0].name + " ", "zzz": "zzz",
		"faults loss-": "faults loss-", "info x": "info x", "": "",
	} {
		if got, _ := f.console.Complete(line); got != want {
			t.Errorf("%q became %q, want %q", line, got, want)
		}
	}
	if _, candidates := f.console.Complete("re"); !slices.Equal(candidates, []string{"reassign", "rebalance", "remove", "reverse"}) {
		t.Errorf("candidates %q", candidates)
	}
}

func FuzzConsole(f *testing.F) {
	for _, seed := range []string{"", "info", "clear 3", "add 1.2.3.4:5", "remove [::1]:9", "reverse on", "faults loss-forward=1e400", "drain x off", "entries 9999999999"} {
		f.Add(seed)
	}
	d, err := udpnat.Open(udpnat.Config{Workers: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Close() })
	c := udpnat.NewConsole(d, &intent{datapath: d, spec: lb.Spec{}}, udpnat.ConsoleOptions{Exit: func() {}})
	f.Fuzz(func(t *testing.T, line string) {
		_, _ = c.Execute(t.Context(), line)
		if completed, _ := c.Complete(line); len(completed) < len(line) && !strings.HasPrefix(line, completed) {
			t.Fatalf("%q was cut to %q", line, completed)
		}
	})
}
