package kubelab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Slot is a namespace with an address, in which one Pod at a time can run.
type Slot struct {
	Host    *netlab.Host
	Address netip.Addr
}

// node is the name of the Kubelet's Node.
const node = "lab"

// Kubelet runs every Pod of the API server as a process in a slot that is free, those of the host's network in the control plane's
// namespace, which is the node's.
type Kubelet struct {
	plane   *ControlPlane
	image   string // directory of the unpacked image
	options KubeletOptions
	group   *programs.Group

	mu      sync.Mutex
	free    []Slot                // the one that has been free for longest first
	running map[string]*Container // by namespace/name
	changed chan struct{}         // the API server has said that a Pod is another one now
	stop    chan struct{}
	stopped chan struct{}
}

// Container is the process of a Pod.
type Container struct {
	Slot  Slot
	uid   string
	pod   corev1.Pod
	group *programs.Group

	mu      sync.Mutex
	cmd     *exec.Cmd
	output  bytes.Buffer
	started int
	ended   chan struct{}
	ending  bool // SIGTERM was sent
	killAt  time.Time
	seen    string // the status that was written last

	// Of the kubelet's own goroutine: how often it has looked, and at which start of the process it found a socket, and readiness.
	looks, listened, steady int
}

// KubeletOptions say what a kubelet runs.
type KubeletOptions struct {
	Image string // directory of the unpacked image, of which all Pods run
	Slots []Slot
	// Programs are the commands of containers that have none, by the last part of the name of their image.
	Programs map[string]string
	// MaxGrace is how long a process may take to end, whatever its Pod says; 0: as long as that.
	MaxGrace time.Duration
	// Listening: a container without a readiness probe is ready once it has a socket.
	Listening bool
	// HostPaths are the directories that volumes of kind hostPath are, by the path that a Pod names. No other one can be had.
	HostPaths map[string]string
}

// StartKubelet starts a kubelet with the node it is of.
func (c *ControlPlane) StartKubelet(o KubeletOptions) (*Kubelet, error) {
	k := &Kubelet{
		plane: c, options: o, image: o.Image, group: programs.NewGroup(), free: slices.Clone(o.Slots), running: map[string]*Container{},
		changed: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if err := c.Apply("", []byte("apiVersion: v1\nkind: Node\nmetadata: {name: "+node+"}\n"), false); err != nil {
		return nil, err
	}
	// Admission adds the taint of a node that is not ready, and DaemonSets do not tolerate it.
	if err := c.Merge("/api/v1/nodes/"+node, `{"spec": {"taints": null}}`); err != nil {
		return nil, err
	}
	go k.run()
	return k, nil
}

// Stop ends the kubelet and kills the processes of all Pods. It returns what they had written, by NAMESPACE/NAME.
func (k *Kubelet) Stop() (outputs map[string]string) {
	close(k.stop)
	<-k.stopped
	outputs = map[string]string{}
	for name, r := range k.running {
		_ = r.Kill() // it may have ended
		<-r.ended
		outputs[name] = r.Output()
	}
	return outputs
}

// Pod returns the running process of a Pod, by NAMESPACE/NAME; nil: there is none.
func (k *Kubelet) Pod(name string) *Container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[name]
}

// Output is what the Pod has written, through restarts of its process.
func (r *Container) Output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}

// Write takes output of the process.
func (r *Container) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.Write(p)
}

// Kill kills the Pod's process with SIGKILL; the kubelet starts another one.
func (r *Container) Kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signal(syscall.SIGKILL)
}

// signal sends a signal to the first process of the container, whose end is that of all others.
func (r *Container) signal(signal syscall.Signal) error {
	pid, err := r.first()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

// first is the process id, seen from here, of what is process 1 in the container.
func (r *Container) first() (int, error) {
	parent := r.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the container's process has ended: %w", err)
	}
	return pid, nil
}

// Admin is the address of an admin socket that the container has at a path, as seen from here.
func (r *Container) Admin(path string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := r.first()
	return fmt.Sprintf("unix:/proc/%d/root%s", pid, path), err
}

// Command is a program that runs inside the Pod, as by kubectl exec.
func (r *Container) Command(args ...string) (string, error) {
	r.mu.Lock()
	pid, err := r.first()
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	enter := []string{"-t", fmt.Sprint(pid), "-m", "-n", "-u", "-p", "-r", "-w"}
	cmd := exec.Command("nsenter", append(enter, args...)...)
	cmd.Env = r.cmd.Env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// every is how often the kubelet looks at its Pods, steadyLooks at how many of these looks it probes one that is ready.
const (
	every       = 50 * time.Millisecond
	steadyLooks = 4
)

// run looks at the processes of all Pods again and again. It lists the Pods only when the API server has said that one has changed, or when a
// step has failed: each list takes a millisecond and more of both sides.
func (k *Kubelet) run() {
	defer close(k.stopped)
	ctx, cancel := context.WithCancel(k.plane.ctx)
	var watching sync.WaitGroup
	watching.Go(func() { k.watch(ctx) })
	defer watching.Wait()
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var pods []corev1.Pod
	for stale := true; ; {
		select {
		case <-k.stop:
			return
		case <-ticker.C:
		}
		select {
		case <-k.changed:
			stale = true
		default:
		}
		listed := stale
		if stale {
			var list corev1.PodList
			if err := k.plane.Get(podsPath, &list); err != nil {
				continue // it may be stopped for a moment by the test
			}
			pods, stale = list.Items, false
		}
		for i := range pods {
			err := k.reconcile(&pods[i])
			if err != nil && !strings.Contains(err.Error(), "NotFound") {
				k.plane.options.Log("kubelet: Pod %s: %v", pods[i].Name, err)
			}
			stale = stale || err != nil || pods[i].Spec.NodeName == ""
		}
		if listed {
			k.forget(pods)
		}
	}
}

// reconcile brings one Pod a step on.
func (k *Kubelet) reconcile(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		binding := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": %q}, "target": {"kind": "Node", "name": %q}}`, pod.Name, node)
		return k.plane.request(http.MethodPost, path(pod)+"/binding", "application/json", []byte(binding), nil)
	}
	r := k.Pod(pod.Namespace + "/" + pod.Name)
	if r != nil && r.uid != string(pod.UID) { // the one before, which is deleted
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return k.end(pod, r)
	}
	if r == nil {
		return k.begin(pod)
	}
	select {
	case <-r.ended: // restartPolicy: Always
		if err := r.start(); err != nil {
			return err
		}
	default:
	}
	return k.report(pod, r)
}

func path(pod *corev1.Pod) string { return "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name }

// begin starts a Pod in a free slot. What it needs, such as a Secret, may come later: then it is tried again.
func (k *Kubelet) begin(pod *corev1.Pod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &Container{uid: string(pod.UID), pod: *pod, group: k.group}
	switch {
	case pod.Spec.HostNetwork:
		r.Slot = Slot{Host: k.plane.options.Host, Address: k.plane.options.Address}
	case len(k.free) == 0:
		return nil
	default:
		r.Slot = k.free[0]
	}
	if err := k.prepare(r); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	if !pod.Spec.HostNetwork {
		k.free = k.free[1:]
	}
	k.running[pod.Namespace+"/"+pod.Name] = r
	return nil
}

// start starts the process of a container that prepare has made.
func (r *Container) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := exec.Command(r.cmd.Path, r.cmd.Args[1:]...)
	next.Env, next.Stdout, next.Stderr = r.cmd.Env, r, r
	next.WaitDelay = 5 * time.Second
	if err := r.group.Start(r.Slot.Host, next); err != nil {
		return err
	}
	r.cmd, r.ended = next, make(chan struct{})
	r.started++
	ended := r.ended
	go func() {
		_ = next.Wait() // it is restarted whatever the reason
		r.group.Forget(next)
		close(ended)
	}()
	return nil
}

// end ends a Pod that is deleted: SIGTERM, SIGKILL when its grace is over, then the object.
func (k *Kubelet) end(pod *corev1.Pod, r *Container) error {
	if r != nil {
		select {
		case <-r.ended:
		default:
			if !r.ending {
				grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
				if k.options.MaxGrace > 0 {
					grace = min(grace, k.options.MaxGrace)
				}
				r.ending, r.killAt = true, time.Now().Add(grace)
				return r.signal(syscall.SIGTERM)
			}
			if time.Now().After(r.killAt) {
				return r.Kill()
			}
			return nil
		}
		k.release(pod.Namespace + "/" + pod.Name)
	}
	return k.plane.Delete(path(pod), 0)
}

// release frees the slot of a Pod whose process has ended.
func (k *Kubelet) release(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.running[name]; r != nil {
		if !r.pod.Spec.HostNetwork {
			k.free = append(k.free, r.Slot)
		}
		delete(k.running, name)
	}
}

// forget kills the processes of Pods that were deleted at once.
func (k *Kubelet) forget(pods []corev1.Pod) {
	k.mu.Lock()
	names := slices.Collect(maps.Keys(k.running))
	k.mu.Unlock()
	for _, name := range names {
		r := k.Pod(name)
		if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == r.uid }) {
			continue
		}
		_ = r.Kill() // it may have ended
		<-r.ended
		k.release(name)
	}
}

// report writes the Pod's status if it has changed.
func (k *Kubelet) report(pod *corev1.Pod, r *Container) error {
	if r.looks++; r.steady == r.started && r.looks%steadyLooks != 0 {
		return nil
	}
	ready := corev1.ConditionFalse
	r.steady = 0
	if r.ready() && (!k.options.Listening || r.listens()) {
		ready, r.steady = corev1.ConditionTrue, r.started
	}
	now := fmt.Sprint(r.started, ready, r.Slot.Address)
	if now == r.seen {
		return nil
	}
	address := r.Slot.Address.String()
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, HostIP: k.plane.options.Address.String(),
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: ready == corev1.ConditionTrue, Started: new(true), RestartCount: int32(r.started - 1),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue}
		if condition == corev1.ContainersReady || condition == corev1.PodReady {
			c.Status = ready
		}
		status.Conditions = append(status.Conditions, c)
	}
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	if err := k.plane.request(http.MethodPatch, path(pod)+"/status", "application/merge-patch+json", text, nil); err != nil {
		return err
	}
	r.seen = now
	return nil
}
