package steertest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// Run runs every case of the corpus as a subtest against a Path that open makes. beyond names the cases that are beyond
// the path, each with words of the reason: they pass when the path refuses them for that reason, and fail when it does not.
// A name that ends in * stands for all cases that begin so and have no line of their own. No case is skipped.
func Run(t *testing.T, beyond map[string]string, open func(t *testing.T) Path) {
	t.Helper()
	known := map[string]bool{}
	for _, file := range corpus(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		reason, by := beyondFor(beyond, name)
		known[by] = true
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			defer expectRefusal(t, reason)
			runCase(t, parseArchive(string(text)), open(t))
		})
	}
	for name := range beyond {
		if !known[name] {
			t.Errorf("no case is named %s", name)
		}
	}
}

// beyondFor returns why a case is beyond a path, and the name that says so: its own or the longest pattern.
func beyondFor(beyond map[string]string, name string) (reason, by string) {
	if reason, ok := beyond[name]; ok {
		return reason, name
	}
	for pattern, why := range beyond {
		if head, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, head) && len(pattern) > len(by) {
			reason, by = why, pattern
		}
	}
	return reason, by
}

// refusal is why a path cannot run a case; it ends the case by a panic that expectRefusal takes.
type refusal string

// Refuse ends the case that a Path finds beyond it while it runs; to be called in Packet.
func Refuse(reason string) { panic(refusal(reason)) }

func expectRefusal(t *testing.T, want string) {
	t.Helper()
	switch got := recover().(type) {
	case refusal:
		if want == "" || !strings.Contains(string(got), want) {
			t.Errorf("the path refuses the case: %s; expected a refusal with %q", got, want)
		}
	case nil:
		if want != "" && !t.Failed() {
			t.Errorf("the path runs the case, which was said to be beyond it (%s)", want)
		}
	default:
		panic(got)
	}
}

// run is one case in progress.
type run struct {
	t       *testing.T
	archive archive
	path    Path
	traits  Traits

	spec       lb.Spec
	overrides  *lb.Overrides
	snapshot   *lb.Snapshot
	generation uint64
	now        time.Duration
	sent       []sent // by the last in
	results    []Result
	current    *Result // the one that out and mark look at
	input      sent
	names      map[string]string
}

type sent struct {
	data  []byte
	frame bool
}

func runCase(t *testing.T, a archive, path Path) {
	t.Helper()
	r := &run{t: t, archive: a, path: path, traits: path.Traits(), names: map[string]string{}}
	if strings.TrimSpace(a.comment) == "" {
		t.Fatal("the case does not say what it shows")
	}
	steps, ok := a.files["steps"]
	if !ok {
		t.Fatal("no steps")
	}
	r.needs(steps)
	r.apply("spec.yaml")
	wants := 0
	for i, line := range strings.Split(steps, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if strings.HasPrefix(line, "want ") {
			wants++
		}
		if err := r.step(line); err != nil {
			t.Fatalf("steps, line %d: %s: %v", i+1, line, err)
		}
	}
	if len(r.results) > 0 {
		t.Fatalf("%d results at the end that nothing wants: %+v", len(r.results), r.results)
	}
	if wants == 0 {
		t.Fatal("the case wants nothing, so it cannot fail")
	}
}

// needs refuses the case where a trait is missing.
func (r *run) needs(steps string) {
	for _, line := range strings.Split(steps, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var missing []string
		switch words[0] {
		case "need":
			missing = words[1:]
		case "at":
			missing = []string{"clock"}
		}
		for _, w := range missing {
			if !r.traits.has(w) {
				panic(refusal(fmt.Sprintf("%s has no %s", r.traits.Caps.Name, w)))
			}
		}
	}
}

func (r *run) step(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch verb {
	case "need":
		return nil
	case "at":
		d, err := time.ParseDuration(rest)
		if err == nil && d < r.now {
			err = fmt.Errorf("the clock is at %s already", r.now)
		}
		r.now = d
		return err
	case "apply":
		r.apply(rest)
		return nil
	case "override":
		return r.override(rest)
	case "in", "raw", "frame", "again":
		return r.in(verb, rest)
	case "repeat":
		return r.repeat(rest)
	case "want":
		return r.want(strings.Fields(rest))
	case "out":
		return r.out(rest)
	case "mark":
		return r.mark(rest)
	}
	return fmt.Errorf("unknown step")
}

func (r *run) apply(name string) {
	r.t.Helper()
	text, ok := r.archive.files[name]
	if !ok {
		r.t.Fatalf("no file %s in the case", name)
	}
	spec, document, err := config.Decode[lb.Spec](name, []byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := lb.Compile(spec, nil, lb.AllCaps()); err != nil {
		r.t.Fatal(document.File(), err)
	}
	if r.traits.AsMark {
		asMark(&spec)
	}
	r.spec = spec
	r.compile()
}

// asMark changes services of mode l2dsr to mode mark. A backend's mark follows from its name, so that one that comes back
// is the same one.
func asMark(spec *lb.Spec) {
	for i := range spec.Services {
		service := &spec.Services[i]
		if service.Mode == nil || *service.Mode != lb.L2DSR {
			continue
		}
		mark := lb.Mark
		service.Mode = &mark
		for j := range service.Backends {
			b := &service.Backends[j]
			if b.Action != lb.ActForward {
				continue
			}
			b.Mark = crc32.ChecksumIEEE([]byte(service.Name+"/"+b.Name)) | 1
		}
	}
}

// compile applies spec and overrides. What this data path cannot do skips the case.
func (r *run) compile() {
	r.t.Helper()
	// The wall clock goes as the clock of the steps, so that earlier tables are kept as in a running balancer.
	moment := lb.Moment{Now: time.Unix(1, 0).Add(r.now)}
	snapshot, err := lb.CompileAt(moment, r.snapshot, r.spec, r.overrides, r.traits.Caps)
	if err != nil {
		panic(refusal(err.Error()))
	}
	r.snapshot = snapshot
	r.generation++
	snapshot.Generation = r.generation
	if err := r.path.Apply(snapshot); err != nil {
		r.t.Fatalf("apply: %v", err)
	}
}

func (r *run) override(rest string) error {
	words := strings.Fields(rest)
	from := lb.FromOperator
	if len(words) == 3 && words[2] == "health" {
		words, from = words[:2], lb.FromHealth
	}
	if len(words) != 2 {
		return fmt.Errorf("write SERVICE[/BACKEND] drain|down|up|none [health]")
	}
	service, backend, _ := strings.Cut(words[0], "/")
	if name, ok := strings.CutPrefix(backend, "$"); ok {
		backend = r.names[name]
	}
	var value lb.Override
	if err := value.UnmarshalText([]byte(words[1])); err != nil {
		return err
	}
	r.overrides = r.overrides.With(lb.Target{Service: service, Backend: backend}, from, value)
	r.compile()
	return nil
}

func (r *run) in(verb, rest string) error {
	if len(r.results) > 0 {
		return fmt.Errorf("%d results before that nothing wants: %+v", len(r.results), r.results)
	}
	switch verb {
	case "in":
		d, err := packet.ParseText(rest)
		if err != nil {
			return err
		}
		r.sent = nil
		for _, b := range d.Packets {
			r.sent = append(r.sent, sent{b, d.Frame})
		}
	case "raw", "frame":
		b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
		if err != nil {
			return err
		}
		r.sent = []sent{{b, verb == "frame"}}
	}
	r.current = nil
	for _, s := range r.sent {
		result, err := r.path.Packet(bytes.Clone(s.data), s.frame, r.now)
		if err != nil {
			return err
		}
		r.results = append(r.results, result)
	}
	return nil
}

// repeat gives the last packet n times more, with the same result each time.
func (r *run) repeat(rest string) error {
	n, err := strconv.Atoi(rest)
	if err != nil || r.current == nil || len(r.sent) != 1 || len(r.results) > 0 {
		return fmt.Errorf("write one packet and what it wants first, then repeat NUMBER")
	}
	for i := range n {
		got, err := r.path.Packet(bytes.Clone(r.sent[0].data), r.sent[0].frame, r.now)
		if err != nil {
			return err
		}
		if got.Reason != r.current.Reason || got.Service != r.current.Service || got.Backend != r.current.Backend {
			return fmt.Errorf("number %d: got %s %s %s/%s", i+1, got.Action, got.Reason, got.Service, got.Backend)
		}
	}
	return nil
}

func (r *run) want(words []string) error {
	if len(r.results) == 0 {
		return fmt.Errorf("no packet is left to want something of")
	}
	if len(words) < 2 || len(words) > 3 {
		return fmt.Errorf("write want ACTION REASON [SERVICE/BACKEND]")
	}
	got := r.results[0]
	r.input = r.sent[len(r.sent)-len(r.results)]
	r.results, r.current = r.results[1:], &got
	reason, ok := lb.ParseReason(words[1])
	if !ok || reason.Action().String() != words[0] {
		return fmt.Errorf("no reason %q with action %q", words[1], words[0])
	}
	if got.Reason != reason || got.Action != reason.Action() {
		return fmt.Errorf("got %s %s %s/%s", got.Action, got.Reason, got.Service, got.Backend)
	}
	if len(words) == 2 {
		if got.Action == lb.Forward && got.Reason != lb.ReasonTier { // whose member is named by its mark
			return fmt.Errorf("say to which backend; it was %s/%s", got.Service, got.Backend)
		}
		return nil
	}
	return r.wantBackend(words[2], got)
}

func (r *run) wantBackend(want string, got Result) error {
	service, backend, _ := strings.Cut(want, "/")
	if got.Service != service {
		return fmt.Errorf("got service %q", got.Service)
	}
	if name, ok := strings.CutPrefix(backend, "!$"); ok {
		if got.Backend == r.names[name] {
			return fmt.Errorf("got %s/%s again", got.Service, got.Backend)
		}
		return nil
	}
	if name, ok := strings.CutPrefix(backend, "$"); ok {
		if _, bound := r.names[name]; !bound {
			if got.Backend == "" {
				return fmt.Errorf("got no backend")
			}
			r.names[name] = got.Backend
		}
		backend = r.names[name]
	}
	if got.Backend != backend {
		return fmt.Errorf("got %s/%s, want backend %q", got.Service, got.Backend, backend)
	}
	return nil
}

func (r *run) out(rest string) error {
	if r.current == nil {
		return fmt.Errorf("write want first")
	}
	want, err := r.expected(rest)
	if err != nil || r.traits.NoBytes {
		return err
	}
	if !bytes.Equal(r.current.Out, want) {
		return fmt.Errorf("\n got %x\nwant %x", r.current.Out, want)
	}
	return nil
}

// expected returns the bytes that rest describes.
func (r *run) expected(rest string) ([]byte, error) {
	if text, ok := strings.CutPrefix(rest, "hex "); ok {
		if r.traits.Router {
			panic(refusal("golden bytes are those of a path that is no router"))
		}
		return hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	}
	head, carried, tunnel := strings.Cut(rest, " carrying ")
	if !tunnel {
		carried = rest
	}
	inner := bytes.Clone(r.input.data)
	if carried != "same" {
		d, err := packet.ParseText(carried)
		if err != nil {
			return nil, err
		}
		if len(d.Packets) != 1 || d.Frame {
			return nil, fmt.Errorf("describes no single IP packet")
		}
		inner = d.Packets[0]
	}
	var p packet.Packet
	parse := packet.Parse
	if carried == "same" && r.input.frame {
		parse = packet.ParseFrame
	}
	if err := parse(inner, &p); err != nil {
		return nil, err
	}
	if r.traits.Router && r.current.Action == lb.Forward && !p.DecrementTTL() {
		return nil, fmt.Errorf("a router does not forward this TTL")
	}
	if !tunnel {
		return p.Data, nil
	}
	return encapsulate(strings.Fields(head), p.Data)
}

func (r *run) mark(rest string) error {
	n, err := strconv.ParseUint(rest, 0, 32)
	if err != nil || r.current == nil {
		return fmt.Errorf("write want first, then mark NUMBER")
	}
	if r.current.Mark != uint32(n) {
		return fmt.Errorf("got mark %d", r.current.Mark)
	}
	return nil
}
