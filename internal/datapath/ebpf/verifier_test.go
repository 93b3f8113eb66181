package ebpf

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// maximum is how many instructions the verifier may walk in one program: an eighth of what it allows. Each 100,000 take 0.15 s of
// every start. What makes it walk a path for every value of something: keep that in the packet's record, whose contents it does
// not follow; give a rare look-up a function of its own; run a rare search in bpf_loop.
const maximum = 130_000

var processed = regexp.MustCompile(`processed (\d+) insns`)

// TestRootVerifier loads each program with the parameters that make it largest
// and holds what the verifier had to do to a bound. Its times and stack depths
// are in the log.
func TestRootVerifier(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	for _, hook := range hooks {
		for jumbo := range uint32(2) {
			if hook == attach.HookTCX && jumbo != 0 {
				continue
			}
			t.Run(fmt.Sprint(hook, "/jumbo=", jumbo), func(t *testing.T) {
				s := maps.SizesFor(lb.Limits{Flows: 1 << 16, Fragments: 1 << 10})
				spec, err := objectOf(hook, s, bpf.Parameters{
					Hash: maps.RandomWords(), FlowMask: uint32(s.Buckets - 1), BucketSlots: bpf.BucketSlots, FragmentMask: uint32(s.FragmentBuckets - 1), FragmentSlots: bpf.BucketSlots,
					VipMask: uint32(s.VIPs - 1), HopShift: maps.Clock{Tick: 4 * time.Millisecond}.HopShift(), Ticks: 250, TickNs: 4e6, FragmentTtl: 1000, Hold: 100, HoldEach: 8, Partial: 1, Jumbo: jumbo,
				})
				if err != nil {
					t.Fatal(err)
				}
				before := time.Now()
				c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				t.Logf("loaded in %v", time.Since(before))
				for name, p := range c.Programs {
					t.Logf("%s: %s", name, p.VerifierLog)
					found := processed.FindStringSubmatch(p.VerifierLog)
					if found == nil {
						t.Fatalf("%s: the verifier does not say what it did", name)
					}
					if n, _ := strconv.Atoi(found[1]); n > maximum {
						t.Errorf("%s: the verifier walked %d instructions, more than %d", name, n, maximum)
					}
				}
			})
		}
	}
}
