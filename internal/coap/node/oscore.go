package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// TestOSCORE are the parameters of the security context of Californium's plugtest server, as the client has them. The secret is
// public: it is for tests.
func TestOSCORE() oscore.Parameters {
	return oscore.Parameters{
		Name:         "test",
		MasterSecret: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		MasterSalt:   []byte{0x9e, 0x7c, 0xa9, 0x22, 0x23, 0x78, 0x63, 0x40},
		IDContext:    []byte{0x37, 0xcb, 0xf3, 0x21, 0x00, 0x17, 0xa2, 0xd3},
		SenderID:     []byte{1},
		RecipientID:  []byte{2},
	}
}

// loadContexts makes the table of security contexts; nil: OSCORE is not served.
func (c *Config) loadContexts() (*oscore.Table, error) {
	var contexts []*oscore.Context
	if c.OSCOREFile != "" {
		var err error
		if contexts, err = oscore.Load(c.OSCOREFile, oscore.Step); err != nil {
			return nil, err
		}
	}
	if c.testOSCORE() {
		p := TestOSCORE()
		p.SenderID, p.RecipientID, p.Renewable = p.RecipientID, p.SenderID, true
		test, err := oscore.New(p, nil, 1)
		if err != nil {
			return nil, err
		}
		contexts = append(contexts, test)
	}
	if len(contexts) == 0 {
		return nil, nil
	}
	table, err := oscore.NewTable(contexts...)
	if err != nil {
		return nil, fmt.Errorf("oscore: %s: %w", c.OSCOREFile, err)
	}
	return table, nil
}

// testOSCORE reports whether the public test context is served.
func (c *Config) testOSCORE() bool {
	if c.OSCORETest != nil {
		return *c.OSCORETest
	}
	return c.OSCOREFile == "" && c.demo()
}

// echoing is a handler as the source of Echo values.
type echoing interface {
	echo(s *session, now time.Duration) []byte
	echoed(s *session, value []byte, now time.Duration) bool
}

// protect puts OSCORE in front of the server of resources, if there are contexts, and returns the handler of requests with the
// critical options that it takes.
func (c *core) protect(e echoing, size int) (exchange.Handler, message.Supported) {
	if c.listener.contexts == nil {
		return c.server, resource.Supported
	}
	c.oscore = oscore.NewServer(oscore.ServerConfig{
		Contexts: c.listener.contexts, Handler: c.server, Supported: resource.Supported, Size: size,
		Echo: func(s *exchange.Session, now time.Duration) []byte {
			if owner := ownerOf(s); owner != nil {
				return e.echo(owner, now)
			}
			return nil
		},
		Echoed: func(s *exchange.Session, value []byte, now time.Duration) bool {
			owner := ownerOf(s)
			return owner != nil && e.echoed(owner, value, now)
		},
	})
	return c.oscore, c.oscore.Supported
}

// oscoreCounters are those of the handler.
func (c *core) oscoreCounters() (counters oscore.Counters) {
	if c.oscore != nil {
		counters = c.oscore.Counters()
	}
	return counters
}

// oscoreOf returns the security context of a request; nil: it was not protected.
func oscoreOf(r *resource.Request) *oscore.Context {
	if p, ok := r.Protection.(*oscore.Protection); ok {
		return p.Context()
	}
	return nil
}

// addOSCORE adds the resources of Californium's plugtest server for OSCORE.
func (l *listener) addOSCORE(t *resource.Tree) {
	t.Add("/oscore", &resource.Resource{
		Attributes: titled("0", "only with OSCORE"), Protected: true,
		Get: func(r *resource.Request) {
			r.MaxAge(30)
			m := r.Message
			answerText(r, shorten(fmt.Sprintf("OSCORE Resource\nCode: %d (%s)\nMID: %d\nToken: %X", m.Code, m.Code.Name(), m.ID, m.Token)))
		},
		Post: func(r *resource.Request) {
			r.Location([]string{"location1", "location2", "location3"}, nil)
			r.Done(message.Created)
		},
		Put: done(message.Changed), Delete: done(message.Deleted),
	})
	t.Add("/oscoreInfo", &resource.Resource{Attributes: titled("0", "security contexts of OSCORE"), Get: func(r *resource.Request) {
		r.MaxAge(0)
		answerText(r, l.describeContext(oscoreOf(r)))
	}})
}

// shorten makes a text fit one block of the plugtest profile, since the next one would come from another request, with another text.
// The last character of a text that was too long marks that it was cut; no character before it is.
func shorten(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-len("»")], "") + "»"
	}
	return text
}

// describeContext shows the context of a request or, of one that was not protected, the public test context.
func (l *listener) describeContext(own *oscore.Context) string {
	for _, c := range l.contexts.Contexts() {
		if own == nil && c.Name() == TestOSCORE().Name {
			own = c
		}
	}
	if own == nil {
		return "OSCORE with contexts of a file"
	}
	return shorten(fmt.Sprintf("ID Context: %x\nSequence Number: %d", own.Parameters().IDContext, own.Expected()))
}
