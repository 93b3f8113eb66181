package node

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// Bounds of the receive test. The table holds at most maxDevices devices and maxReceiveBytes bytes; when it is full, the device that has
// been silent longest makes room, of the source that holds most.
const (
	maxDevices      = 16384
	maxReceived     = 24      // newest requests of a device
	maxReceiveBytes = 8 << 20 // of names
	maxReceiveName  = 64      // bytes of a device's name or a request's id
	receiveLength   = 500     // bytes of an answer
	maxReceive      = 1023    // bytes of an answer, with rlen
)

// receives is the history of the receive test: which requests of which device came when.
type receives struct {
	devices map[string]int32
	slots   []device
	free    []int32
	order   evict.Order[evict.Source]
	bytes   int
}

type device struct {
	name     string
	requests []received // newest first
}

// received is one request of a device.
type received struct {
	id   string
	at   int64 // in milliseconds since 1970
	from netip.AddrPort
}

// receiveQuery is what a request of the receive test contains.
type receiveQuery struct {
	device, id string
	endpoint   bool
	length     int
}

// serveRequests enters a request in the history of its device and answers with the newest ones.
func (e *extended) serveRequests(r *resource.Request) {
	q, ok := receiveQueryOf(r)
	if !ok {
		return
	}
	format, ok := r.Accepts(message.Text, message.JSON, message.CBOR)
	if !ok {
		return
	}
	from := owner(r.Session).addr()
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	e.mu.Lock()
	history := e.receives.enter(q.device, received{q.id, e.clock().UnixMilli(), from})
	body := renderReceived(format, e.start.UnixMilli(), history, q.endpoint, q.length)
	e.mu.Unlock()
	r.Answer(message.Changed, format, body)
}

// receiveQueryOf reads the queries, or answers 4.02.
func receiveQueryOf(r *resource.Request) (q receiveQuery, ok bool) {
	q.length = receiveLength
	const known = "dev=NAME and rid=ID without a colon, of at most 64 bytes, are needed; ep and rlen=1..1023 are known"
	for _, part := range queries(r) {
		ok = false
		switch part.name {
		case "dev":
			q.device, ok = part.value, 0 < len(part.value) && len(part.value) <= maxReceiveName
		case "rid":
			q.id, ok = part.value, 0 < len(part.value) && len(part.value) <= maxReceiveName && !strings.Contains(part.value, ":")
		case "ep":
			q.endpoint, ok = true, true
		case "rlen":
			q.length, ok = numberOf(part.value, 1, maxReceive)
		}
		if !ok {
			r.BadQuery(part.raw, known)
			return q, false
		}
	}
	if q.device == "" || q.id == "" {
		r.Error(message.BadOption, known)
		return q, false
	}
	return q, true
}

// enter adds a request and returns the history of its device, which is valid until the next call.
func (t *receives) enter(name string, request received) []received {
	i, ok := t.devices[name]
	if !ok {
		i = t.take(name, request.from)
	}
	d := &t.slots[i]
	if len(d.requests) == maxReceived {
		t.bytes -= len(d.requests[maxReceived-1].id)
		d.requests = d.requests[:maxReceived-1]
	}
	d.requests = append(d.requests, received{})
	copy(d.requests[1:], d.requests)
	d.requests[0] = request
	t.bytes += len(request.id)
	t.order.Renew(i)
	for t.bytes > maxReceiveBytes {
		t.drop(t.oldest())
	}
	return t.slots[i].requests
}

// take returns a slot for a new device.
func (t *receives) take(name string, from netip.AddrPort) int32 {
	if len(t.devices) >= maxDevices {
		t.drop(t.oldest())
	}
	i := int32(len(t.slots))
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.slots = append(t.slots, device{})
	}
	t.slots[i] = device{name: name}
	t.devices[name] = i
	t.bytes += len(name)
	t.order.Add(i, evict.SourceOf(from.Addr()))
	return i
}

func (t *receives) oldest() int32 {
	i, _ := t.order.First() // there is one: the table is full
	return i
}

func (t *receives) drop(i int32) {
	d := &t.slots[i]
	t.bytes -= len(d.name)
	for _, r := range d.requests {
		t.bytes -= len(r.id)
	}
	t.order.Remove(i)
	delete(t.devices, d.name)
	*d = device{}
	t.free = append(t.free, i)
}

// renderReceived writes the history, as many of the newest requests as fit.
func renderReceived(format message.Format, start int64, history []received, endpoint bool, limit int) []byte {
	for n := len(history); ; n-- {
		var body []byte
		switch format {
		case message.JSON:
			body = receivedJSON(start, history[:n], endpoint)
		case message.CBOR:
			body = receivedCBOR(start, history[:n], endpoint)
		default:
			body = receivedText(start, history[:n])
		}
		if n == 0 || len(body) <= limit {
			return body
		}
	}
}

func receivedText(start int64, history []received) []byte {
	b := strconv.AppendInt([]byte("systemstart:"), start, 10)
	for _, r := range history {
		b = append(append(append(b, '\n'), r.id...), ':')
		b = strconv.AppendInt(b, r.at, 10)
	}
	return append(b, '\n')
}

func receivedJSON(start int64, history []received, endpoint bool) []byte {
	b := append([]byte{'['}, renderJSON([]field{{"systemstart", int(start)}})...)
	for _, r := range history {
		fields := []field{{"rid", r.id}, {"time", int(r.at)}}
		if endpoint {
			fields = append(fields, field{"ep", r.from.Addr().String()}, field{"port", int(r.from.Port())})
		}
		b = append(append(b, ','), renderJSON(fields)...)
	}
	return append(b, ']')
}

// receivedCBOR writes ports as signed numbers of 16 bits, as Californium does and its clients expect: 60000 is -5536.
func receivedCBOR(start int64, history []received, endpoint bool) []byte {
	b := cborHead(nil, 4, uint64(len(history)+1))
	b = cborHead(cborText(cborHead(b, 5, 1), "systemstart"), 0, uint64(start))
	for _, r := range history {
		fields := uint64(2)
		if endpoint {
			fields = 4
		}
		b = cborText(cborText(cborHead(b, 5, fields), "rid"), r.id)
		b = cborHead(cborText(b, "time"), 0, uint64(r.at))
		if !endpoint {
			continue
		}
		ip := r.from.Addr().AsSlice()
		b = append(cborHead(cborText(b, "ep"), 2, uint64(len(ip))), ip...)
		b = cborText(b, "port")
		if port := int16(r.from.Port()); port < 0 { //nolint:gosec // the wire format
			b = cborHead(b, 1, uint64(-1-int(port)))
		} else {
			b = cborHead(b, 0, uint64(port))
		}
	}
	return b
}
