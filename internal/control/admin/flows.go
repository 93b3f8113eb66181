package admin

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
)

// flowQuery is the query of a request for /flows.
type flowQuery struct {
	service, backend, protocol, state string
	client                            netip.Prefix // invalid: any
	order                             func(a, b v1.Flow) int
	limit                             int
}

func parseFlowQuery(form url.Values) (q flowQuery, err error) {
	q = flowQuery{service: form.Get("service"), backend: form.Get("backend"), protocol: form.Get("protocol"), state: form.Get("state"), limit: 1000}
	if text := form.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > v1.MaxFlows {
			return q, fmt.Errorf("limit %q: write 1 to %d", text, v1.MaxFlows)
		}
	}
	if text := form.Get("client"); text != "" {
		if q.client, err = ParseClient(text); err != nil {
			return q, err
		}
	}
	switch text := form.Get("sort"); text {
	case "":
	case "client":
		q.order = func(a, b v1.Flow) int {
			return cmp.Or(clientOf(a).Compare(clientOf(b)), strings.Compare(a.Client, b.Client))
		}
	case "service":
		q.order = func(a, b v1.Flow) int {
			return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Backend, b.Backend))
		}
	case "backend":
		q.order = func(a, b v1.Flow) int {
			return cmp.Or(strings.Compare(a.Backend, b.Backend), strings.Compare(a.Client, b.Client))
		}
	case "expires":
		q.order = func(a, b v1.Flow) int {
			if (a.Expires < 0) != (b.Expires < 0) {
				return cmp.Compare(b.Expires, a.Expires) // never comes last
			}
			return cmp.Compare(a.Expires, b.Expires)
		}
	default:
		return q, fmt.Errorf("sort %q: write client, service, backend or expires", text)
	}
	if q.order != nil && q.limit > maxSorted {
		return q, fmt.Errorf("limit %d: write at most %d for a sorted list", q.limit, maxSorted)
	}
	return q, nil
}

func clientOf(f v1.Flow) netip.Addr {
	at, err := netip.ParseAddrPort(f.Client)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

func (q *flowQuery) wants(f *v1.Flow) bool {
	return (q.service == "" || f.Service == q.service) && (q.backend == "" || f.Backend == q.backend) &&
		(q.protocol == "" || f.Protocol == q.protocol) && (q.state == "" || f.State == q.state) &&
		(!q.client.IsValid() || q.client.Contains(clientOf(*f)))
}

// maxSorted bounds a sorted list; the server holds up to twice as many flows.
const maxSorted = 100_000

// flows answers /flows. A list without an order is written while the flows are read, so it is never in memory as a whole. A
// sorted list has the first of all flows in that order, but no more than twice the limit are held at any time.
func (s *Server) flows(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	q, err := parseFlowQuery(r.Form)
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	if q.order == nil {
		s.streamFlows(w, &q)
		return
	}
	list := v1.FlowList{Flows: []v1.Flow{}}
	cut := func() {
		slices.SortStableFunc(list.Flows, q.order)
		if len(list.Flows) > q.limit {
			list.Flows, list.More = list.Flows[:q.limit], true
		}
	}
	s.config.Flows(func(f v1.Flow) bool {
		if q.wants(&f) {
			if len(list.Flows) == 2*q.limit {
				cut()
			}
			list.Flows = append(list.Flows, f)
		}
		return true
	})
	cut()
	writeJSON(w, http.StatusOK, list)
}

// streamFlows writes a FlowList, one flow in each line.
func (s *Server) streamFlows(w http.ResponseWriter, q *flowQuery) {
	header(w, http.StatusOK)
	out := bufio.NewWriterSize(w, 64<<10)
	out.WriteString("{\"flows\": [")
	n, more := 0, false
	s.config.Flows(func(f v1.Flow) bool {
		if !q.wants(&f) {
			return true
		}
		if more = n == q.limit; more {
			return false
		}
		line, err := json.Marshal(f)
		if err != nil {
			return false // cannot happen: the numbers of a Flow are finite
		}
		if n > 0 {
			out.WriteByte(',')
		}
		n++
		out.WriteByte('\n')
		_, err = out.Write(line)
		return err == nil // false: the client is gone
	})
	fmt.Fprintf(out, "\n], \"more\": %t}\n", more)
	out.Flush()
}

// ParseClient reads the client filter of a list: an address or a prefix.
func ParseClient(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fmt.Errorf("client %q: write an address or a prefix, such as 192.0.2.0/24", text)
	}
	return prefix, nil
}
