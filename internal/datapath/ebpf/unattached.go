package ebpf

import (
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Unattached is a data path whose programs are on no interface: they run by BPF_PROG_TEST_RUN, for measurements.
type Unattached struct {
	d *Datapath
}

// OpenUnattached is Open for one hook's programs. source4 and source6 are the outer sources of tunnels. setClock: the clock
// stands, unless the caller advances Tables().Control.Now, in milliseconds.
func OpenUnattached(hook attach.Hook, source4, source6 netip.Addr, setClock bool) (*Unattached, error) {
	d, err := Open(Config{Hook: hook, Source4: source4, Source6: source6, detached: true, clockSet: setClock})
	if err != nil {
		return nil, err
	}
	return &Unattached{d}, nil
}

// Caps, Apply, Counters and Close are those of the data path.

func (u *Unattached) Caps() lb.Caps { return u.d.Caps() }

func (u *Unattached) Apply(s *lb.Snapshot) error { return u.d.Apply(s) }

func (u *Unattached) Counters() Counters { return u.d.Counters() }

func (u *Unattached) Close() error { return u.d.Close() }

// Program is what packets are given to. There is one once Apply has returned.
func (u *Unattached) Program() *ebpf.Program { return u.d.program(u.d.config.Hook) }

// Tables are those of the program, once Apply has returned.
func (u *Unattached) Tables() *maps.Tables { return u.d.tables }

// Clock is how the program counts time; Now is the time, in ticks of it.
func (u *Unattached) Clock() maps.Clock { return u.d.clock }

func (u *Unattached) Now() uint64 { return u.d.now() }
