package control

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

const twoTables = `
maglev_size: 251
services:
- name: pool
  mode: l2dsr
  generations: 2
  generation_time: 1m
  vips: [{address: 192.0.2.1, protocol: tcp, port: 443}]
  backends:
  - {name: a, address: 10.0.0.1}
`

const oneMore = twoTables + `  - {name: b, address: 10.0.0.2}
`

// An earlier table is left behind when its time is over, without any other change.
func TestEarlierTablesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &memory{}
		l := New(d, Options{})
		for _, text := range []string{twoTables, oneMore} {
			if err := l.Load("weir.yaml", []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		ctx := t.Context()
		go l.Run(ctx, nil, nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if s := d.last(); s.Generation != 2 || s.Services[0].Earlier == nil {
			t.Fatalf("before the end: generation %d, earlier tables %v", s.Generation, s.Services[0].Generations)
		}
		earlier := Describe(d.last(), nil)[0].EarlierTables
		if earlier == nil || earlier.Count != 1 || len(earlier.Tables) != 1 || earlier.Share < .4 || earlier.Share > .6 {
			t.Fatalf("half of the slots of two backends were those of the first: %+v", earlier)
		}
		if e := earlier.Tables[0]; e.Until.Sub(e.Replaced) != time.Minute || !maps.Equal(e.Weights, map[string]int{"a": 100}) {
			t.Errorf("the earlier table: %+v", e)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := d.last(); s.Generation != 3 || s.Services[0].Earlier != nil || !s.Expires().IsZero() {
			t.Fatalf("after it: generation %d, earlier tables %v", s.Generation, s.Services[0].Generations)
		}
		if e := Describe(d.last(), nil)[0].EarlierTables; e == nil || e.Count != 0 || e.Share != 0 {
			t.Errorf("after it: %+v", e)
		}
	})
}

// A process that starts makes the earlier tables from the file of the one before it, also when the file changed meanwhile, and
// not after another hash key.
func TestEarlierTablesOutliveRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lb.tables")
	start := func(text ...string) *lb.Service {
		d := &memory{}
		l := New(d, Options{TablesFile: file})
		for _, text := range text {
			if err := l.Load("weir.yaml", []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		return d.last().Services[0]
	}
	before := start(twoTables, oneMore)
	if before.Earlier == nil {
		t.Fatal("no earlier table after a change")
	}
	again := start(oneMore)
	if again.Earlier == nil || !slices.Equal(again.Earlier.TCP, before.Earlier.TCP) || !again.Generations[0].Replaced.Equal(before.Generations[0].Replaced) {
		t.Fatalf("after a restart: %+v", again.Generations)
	}
	third := start(oneMore + "  - {name: c, address: 10.0.0.3}\n")
	if n := len(third.Generations); n != 2 || len(third.Generations[0].Backends) != 2 {
		t.Fatalf("after a restart with one more backend: %+v", third.Generations)
	}
	if s := start("hash_key: 000102030405060708090a0b0c0d0e0f" + oneMore); s.Earlier != nil {
		t.Fatal("an earlier table under another hash key")
	}
	if err := os.WriteFile(file, []byte(`{"format":1,"services":{"pool":{"backends":[{"name":"","weight":1}]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := start(oneMore); s.Earlier != nil {
		t.Fatal("a bad file was used")
	}
}
