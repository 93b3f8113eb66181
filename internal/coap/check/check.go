package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/coap/client"
)

// Verdicts of a case.
const (
	Pass         = "pass"
	Fail         = "fail"
	Inconclusive = "inconclusive" // the server lacks what the case needs
)

// Config is one run. The zero value of a field means its default.
type Config struct {
	URI      string // of the server, without path
	Security client.Security
	// Known is the raw public key of this client that the server accepts; nil: none was named, see TD_COAP_DTLS_06.
	Known bool
	Only  []string // ids, or beginnings of ids such as CORE or TD_COAP_CORE_0; nil: all
	// Paths replaces paths of the list, such as /test, by those of the server.
	Paths      map[string]string
	Timeout    time.Duration // for each exchange, default 10 s
	Notify     time.Duration // longest wait for a notification, default 15 s
	AckTimeout time.Duration // first retransmission, default 2 s (RFC 7252 section 4.8)
	Abandon    time.Duration // when a server must have given up a client that is silent, default 3 min
	// Begin is called before each case, with its number from 0; nil: nothing is.
	Begin func(number, all int, c *Case)
}

func (c *Config) defaults() {
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&c.Timeout, 10 * time.Second}, {&c.Notify, 15 * time.Second}, {&c.AckTimeout, 2 * time.Second}, {&c.Abandon, 3 * time.Minute}} {
		if *d.value <= 0 {
			*d.value = d.usual
		}
	}
}

// Case is one row of the list.
type Case struct {
	ID       string // such as TD_COAP_CORE_01
	Title    string
	Resource string // path that the server must have; empty: none
	datagram bool   // it is about message types, ids and loss: not over TCP and TLS
	dtls     bool   // it makes DTLS sessions of its own
	run      func(*conversation) error
}

// Group is CORE, LINK, BLOCK, OBS or DTLS.
func (c *Case) Group() string { return strings.Split(c.ID, "_")[2] }

// Select returns the cases that the words name. It fails for a word that names none.
func Select(words []string) ([]Case, error) {
	all := Cases()
	if len(words) == 0 {
		return all, nil
	}
	taken := make([]bool, len(all))
	for _, word := range words {
		found := false
		for i := range all {
			if all[i].named(word) {
				taken[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q names no case; write CORE, LINK, BLOCK, OBS, DTLS or an id such as TD_COAP_CORE_01", word)
		}
	}
	var some []Case
	for i, yes := range taken {
		if yes {
			some = append(some, all[i])
		}
	}
	return some, nil
}

// named reports whether a word of --only is meant for the case: its id, with or without TD_COAP_, or its group.
func (c *Case) named(word string) bool {
	word = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(word)), "TD_COAP_")
	return word != "" && (word == c.Group() || word == strings.TrimPrefix(c.ID, "TD_COAP_"))
}

// listPaths are the paths that the cases use besides their Resource.
func listPaths() map[string]bool {
	paths := map[string]bool{"/obs": true, "/large-create": true, "/link1": true}
	for _, c := range Cases() {
		paths[c.Resource] = true
	}
	return paths
}

// Resources reports a path in Config.Paths that is not one of the list.
func Resources(paths map[string]string) error {
	known := listPaths()
	for path := range paths {
		if !known[path] || path == "" {
			return fmt.Errorf("%q is no path of the list; it has %s", path, strings.TrimSpace(strings.Join(slices.Sorted(maps.Keys(known)), " ")))
		}
	}
	return nil
}

// ErrUnreachable: not one message came from the server.
var ErrUnreachable = errors.New("the server does not answer")

// Run runs the cases one after the other, each on a connection of its own. It fails when the server cannot be reached, and when
// ctx ends: then it returns what is done.
func Run(ctx context.Context, cfg Config) (*v1.CoAPCheck, error) {
	cfg.defaults()
	cases, err := Select(cfg.Only)
	if err != nil {
		return nil, err
	}
	target, err := client.ParseTarget(cfg.URI)
	if err != nil {
		return nil, err
	}
	if own := &cfg.Security; own.Identity == "" && own.Credentials == nil {
		own.Identity, own.Secret = listIdentity, []byte(listSecret)
	}
	listed, err := reach(ctx, &cfg, target)
	if err != nil {
		return nil, err
	}
	out := &v1.CoAPCheck{URI: cfg.URI, Cases: []v1.CoAPCheckCase{}}
	for i := range cases {
		if cfg.Begin != nil {
			cfg.Begin(i, len(cases), &cases[i])
		}
		result := runCase(ctx, &cfg, target, listed, &cases[i])
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		out.Cases = append(out.Cases, result)
		switch result.Verdict {
		case Pass:
			out.Passed++
		case Fail:
			out.Failed++
		default:
			out.Inconclusive++
		}
	}
	return out, nil
}

// reach makes sure that somebody answers, and returns the paths that the server lists, if it does.
func reach(ctx context.Context, cfg *Config, target client.Target) (map[string]bool, error) {
	c, err := converse(ctx, cfg, target, nil)
	if err != nil {
		return nil, err
	}
	defer c.close()
	links, err := c.discover("")
	listed := make(map[string]bool, len(links))
	for _, l := range links {
		listed[l.Target] = true
	}
	var failed *failure
	if errors.As(err, &failed) && c.received == 0 {
		return nil, fmt.Errorf("%s: %w: %s", target.Authority(), ErrUnreachable, failed.received)
	}
	return listed, ctx.Err()
}

// runCase runs one case and makes its row of the result.
func runCase(ctx context.Context, cfg *Config, target client.Target, listed map[string]bool, one *Case) v1.CoAPCheckCase {
	out := v1.CoAPCheckCase{ID: one.ID, Title: one.Title, Verdict: Pass, Trace: []string{}}
	start := time.Now()
	c := &conversation{ctx: ctx, cfg: cfg, target: target, listed: listed}
	err := one.suits(target)
	if err == nil && !one.dtls {
		c, err = converse(ctx, cfg, target, listed)
	}
	if err == nil {
		err = one.run(c)
		c.close()
	}
	out.Seconds = time.Since(start).Seconds()
	if c != nil {
		out.Trace = slices.Clone(c.trace)
	}
	judge(&out, err)
	return out
}

// suits reports why a case cannot run over the scheme of the URI.
func (c *Case) suits(target client.Target) error {
	switch {
	case c.dtls && (!target.Secure || target.Stream):
		return lack("give a coaps:// URI: the case is about DTLS")
	case c.datagram && target.Stream:
		return lack("TCP and TLS have no message types, acknowledgements and retransmissions (RFC 8323 section 2.2)")
	}
	return nil
}

// judge turns the error of a case into a verdict.
func judge(out *v1.CoAPCheckCase, err error) {
	var failed *failure
	var missing lack
	switch {
	case err == nil:
	case errors.As(err, &missing):
		out.Verdict, out.Reason = Inconclusive, missing.Error()
	case errors.As(err, &failed):
		out.Verdict, out.Reason = Fail, failed.Error()
		out.Sent, out.Expected, out.Received, out.Reference = failed.sent, failed.expected, failed.received, failed.reference
	default:
		out.Verdict, out.Reason = Fail, err.Error()
	}
}

// failure says which demand an answer does not meet.
type failure struct{ sent, expected, received, reference string }

func (f *failure) Error() string {
	return fmt.Sprintf("sent %s; expected %s; received %s (%s)", f.sent, f.expected, f.received, f.reference)
}

// lack says what the server would have to have for a verdict.
type lack string

func (l lack) Error() string { return string(l) }

func lackf(format string, args ...any) error { return lack(fmt.Sprintf(format, args...)) }
