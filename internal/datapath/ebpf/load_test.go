package ebpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

func TestRootLoadX(t *testing.T) {
	rlimit.RemoveMemlock()
	for _, f := range []func() (*ebpf.CollectionSpec, error){loadBpf, loadBpfTCX} {
		spec, err := f()
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range spec.Maps { t.Log(name, m.Type, m.ValueSize, m.MaxEntries) }
		c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogSizeStart: 64<<20}})
		if err != nil {
			var v *ebpf.VerifierError
			if errors.As(err, &v) {
				n := len(v.Log)
				t.Logf("%+v", v.Log[max(0, n-70):])
			}
			t.Error(err)
			continue
		}
		for name, p := range c.Programs { i, _ := p.Info(); n, _ := i.VerifiedInstructions(); t.Log(name, n) }
		c.Close()
	}
}
