package check_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// parts is a message that can be changed.
type parts struct {
	message.Type
	code    message.Code
	id      uint16
	token   []byte
	options []client.Option
	payload []byte
}

func take(t testing.TB, datagram []byte) *parts {
	var m message.Message
	if err := message.Parse(slices.Clone(datagram), &m); err != nil {
		t.Errorf("%X: %v", datagram, err)
		return &parts{}
	}
	p := &parts{m.Type, m.Code, m.ID, m.Token, nil, m.Payload}
	for options := m.Options(); options.Next(); {
		p.options = append(p.options, client.Option{ID: options.ID(), Value: options.Value()})
	}
	return p
}

func (p *parts) bytes() []byte {
	var b message.Builder
	b.Reset(make([]byte, 0, 4096), p.Type, p.code, p.id, p.token)
	slices.SortStableFunc(p.options, func(x, y client.Option) int { return int(x.ID) - int(y.ID) })
	for _, o := range p.options {
		b.Option(o.ID, o.Value)
	}
	b.Payload(p.payload)
	out, err := b.Bytes()
	if err != nil {
		panic(err)
	}
	return out
}

// get returns the values of an option, and whether there are any.
func (p *parts) get(id message.OptionID) (values []string, ok bool) {
	for _, o := range p.options {
		if o.ID == id {
			values = append(values, string(o.Value))
		}
	}
	return values, len(values) > 0
}

func (p *parts) number(id message.OptionID) (uint32, bool) {
	values, ok := p.get(id)
	if !ok {
		return 0, false
	}
	return message.Uint([]byte(values[0]))
}

func (p *parts) drop(id message.OptionID) {
	p.options = slices.DeleteFunc(p.options, func(o client.Option) bool { return o.ID == id })
}

// set replaces an option.
func (p *parts) set(id message.OptionID, n uint32) {
	p.drop(id)
	p.options = append(p.options, client.UintOption(id, n))
}

// path is the path of a request.
func (p *parts) path() string {
	segments, _ := p.get(message.URIPath)
	return "/" + strings.Join(segments, "/")
}

// way is the path of one client through the proxy, with what was seen on it.
type way struct {
	requests map[string]*parts // by token
	seen     map[uint16]int    // messages of the client by message id
	came     map[uint16]int    // confirmable messages of the server, likewise
	mids     map[uint16]uint16 // of requests, as the server sees them: the client's
	notified map[string]int    // notifications by token
	flag     bool
	up       func(*parts) // sends a message to the server
}

// request is the request that a message of the server answers; never nil.
func (w *way) request(p *parts) *parts {
	if r := w.requests[string(p.token)]; r != nil {
		return r
	}
	return &parts{}
}

// fault makes a faulty server of a correct one. Both functions may change the message; what they return is sent on, nil nothing. reply
// goes straight back to the client.
type fault struct {
	request func(w *way, p *parts, reply func(*parts)) *parts
	answer  func(w *way, p *parts) *parts
}

// faulty puts a proxy with a fault before a server, and returns its URI.
func faulty(t *testing.T, server string, f fault) string {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	links := map[string]net.Conn{}
	running.Go(func() {
		buffer := make([]byte, 65536)
		ways := map[string]*way{}
		for {
			n, peer, err := front.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			key := peer.String()
			w, link := ways[key], links[key]
			if w == nil {
				if link, err = net.Dial("udp", strings.TrimPrefix(server, "coap://")); err != nil {
					t.Error(err)
					return
				}
				w = &way{
					requests: map[string]*parts{}, seen: map[uint16]int{}, came: map[uint16]int{}, mids: map[uint16]uint16{}, notified: map[string]int{},
					up: func(p *parts) { link.Write(p.bytes()) },
				} //nolint:errcheck // the peer repeats
				mu.Lock()
				ways[key], links[key] = w, link
				mu.Unlock()
				running.Go(func() {
					in := make([]byte, 65536)
					for {
						n, err := link.Read(in)
						if err != nil {
							return
						}
						mu.Lock()
						p := take(t, in[:n])
						if p.Type == message.Con {
							w.came[p.id]++
						}
						if f.answer != nil {
							p = f.answer(w, p)
						}
						if p != nil {
							front.WriteToUDPAddrPort(p.bytes(), peer) //nolint:errcheck // the peer repeats
						}
						mu.Unlock()
					}
				})
			}
			mu.Lock()
			p := take(t, buffer[:n])
			w.seen[p.id]++
			if p.code.IsRequest() {
				w.requests[string(p.token)] = p
			}
			if f.request != nil {
				p = f.request(w, p, func(r *parts) { front.WriteToUDPAddrPort(r.bytes(), peer) }) //nolint:errcheck // the peer repeats
			}
			if p != nil {
				link.Write(p.bytes()) //nolint:errcheck // the peer repeats
			}
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		front.Close()
		mu.Lock()
		for _, link := range links {
			link.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return "coap://" + front.LocalAddr().String()
}
