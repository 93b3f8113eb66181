package lb

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

// inPod starts a program as a Pod has it: in a root folder of its own, a copy of the program in it, of the machine only what is mounted
// into it at the same path. The first argument is the folder, then come what to mount and "--".
const inPod = `set -e
root=$1; shift
for d in /proc /sys /dev /lib /lib64 /usr; do
	if [ -d $d ]; then mkdir -p $root$d; mount --rbind $d $root$d; fi
done
while [ "$1" != -- ]; do
	mkdir -p $root$1; mount --bind $1 $root$1; shift
done
shift
cp "$1" $root/weir; shift
exec chroot $root /weir "$@"`

// newPod makes the next start of the balancer that of another Pod.
func (k *kernelLB) newPod() (root string) {
	root = k.t.TempDir()
	k.pod = []string{"unshare", "--mount", "sh", "-c", inPod, "pod", root, filepath.Dir(k.pins), filepath.Dir(k.config), "--"}
	return root
}

func TestRootKernelPodReplacementTCX(t *testing.T) { podReplacement(t, "tcx") }
func TestRootKernelPodReplacementXDP(t *testing.T) { podReplacement(t, "xdp") }

// The Pod of a DaemonSet is replaced, by a kill or an orderly end: the new one takes the programs and flows of the pin path over from
// another root folder, and no client loses an answer.
func podReplacement(t *testing.T, hook string) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "kpod"+hook)
	k := newKernelLB(t, lab.Namespace("gateway"), hook, kernelInterfaces, kernelSpec(100, false))
	var talkers []*talker
	for range 8 {
		for _, vip := range []string{"10.0.0.1:80", "10.9.9.9:80"} {
			talkers = append(talkers, newTalker(t, lab.Namespace("zone0"), "tcp", vip), newTalker(t, lab.Namespace("zone0"), "udp", vip))
		}
	}
	stop := keepTalking(t.Context(), talkers)
	for i, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		k.end(signal)
		root := k.newPod()
		k.start()
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/root", k.cmd.Process.Pid)); err != nil || got != root {
			t.Errorf("the root folder of Pod %d is %s, %v; want %s", i+1, got, err, root)
		}
		if status := k.until("a configuration", func(s *v1.LBStatus) bool { return s.Generation > 0 }); !status.Kernel.TookOver {
			t.Errorf("Pod %d found nothing in the pins", i+1)
		}
		k.reload(kernelSpec(90-i, false))
	}
	for i, err := range stop() {
		if err != nil {
			t.Errorf("client %d (udp %t): %v", i, talkers[i].udp, fmt.Errorf("lost: %w", err))
		}
	}
}
