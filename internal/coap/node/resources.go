package node

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// resourcesOf builds the table of resources by path. The set is closed; it is built once per listener.
func resourcesOf(cfg *Config) map[string]*resource {
	table := map[string]*resource{
		"/":                 {hidden: true, get: (*request).serveRoot},
		"/.well-known/core": {hidden: true, get: (*request).serveCore},
		"/context":          {attributes: `;ct="0 50 41 60";title="how the server sees you, as Californium 2.5"`, get: (*request).serveContext},
		"/mycontext":        {attributes: `;ct="0 50 41 60";title="how the server sees you"`, get: (*request).serveMyContext},
		"/myip":             {attributes: `;ct="0 50 41";title="your address"`, get: (*request).serveMyIP},
		"/separate":         {attributes: `;ct=0;title="answers separately"`, get: (*request).serveSeparate},
	}
	benchmark := &resource{attributes: `;ct=0;title="benchmark: rlen=0..8192, ack"`, get: (*request).serveBenchmark, post: (*request).serveBenchmark}
	if !*cfg.Benchmark {
		benchmark = &resource{hidden: true, get: (*request).noBenchmark, post: (*request).noBenchmark}
	}
	table["/benchmark"] = benchmark
	return table
}

// linksOf returns the listed resources in link-format, ordered by path.
func linksOf(table map[string]*resource) []link {
	var links []link
	for path, r := range table {
		if !r.hidden {
			links = append(links, link{path: path, text: "<" + path + ">" + r.attributes})
		}
	}
	slices.SortFunc(links, func(a, b link) int { return strings.Compare(a.path, b.path) })
	return links
}

func (r *request) serveRoot() {
	if _, ok := r.accepts(message.Text); ok && r.noQuery() {
		r.body(message.Content, message.Text, []byte("Weir "+r.handler.listener.cfg.Version+
			", CoAP and DTLS connection ids.\nResources: /.well-known/core. What you send here is not private."))
	}
}

// Benchmark texts and bounds.
const (
	maxRlen         = 8192
	benchmarkPost   = "hello benchmark"
	benchmarkGet    = "hello observe "
	benchmarkPeriod = 5 * time.Second // how long a GET's number stays
)

// benchmarkBody returns the longest body of a benchmark POST; shorter ones are its beginning.
func benchmarkBody() []byte {
	return []byte(benchmarkPost + strings.Repeat("*", maxRlen-len(benchmarkPost)))
}

func (r *request) noBenchmark() {
	r.reply.Text(message.NotImplemented, "benchmark is not supported on this host!")
}

// serveBenchmark answers POST with 2.04 and GET with 2.05. rlen cuts or pads the text with "*", ack asks for a separate
// response.
func (r *request) serveBenchmark() {
	length := -1
	for options := r.message.Options(); options.Next() && options.ID() <= message.URIQuery; {
		if options.ID() != message.URIQuery {
			continue
		}
		query := options.Value()
		switch {
		case string(query) == "ack":
			r.reply.Separate(0)
		case len(query) > 5 && string(query[:5]) == "rlen=":
			n, ok := parseLength(query[5:])
			if !ok {
				r.badQuery(query, "rlen is 0 to 8192")
				return
			}
			length = n
		default:
			r.badQuery(query, "rlen=0..8192 and ack are")
			return
		}
	}
	if _, ok := r.accepts(message.Text); !ok {
		return
	}
	if r.message.Code == message.POST {
		if length < 0 {
			length = len(benchmarkPost)
		}
		r.body(message.Changed, message.Text, r.handler.listener.benchmark[:length])
		return
	}
	text := strconv.AppendInt([]byte(benchmarkGet), int64(r.now/benchmarkPeriod), 10)
	if length >= 0 {
		for len(text) < length {
			text = append(text, '*')
		}
		text = text[:length]
	}
	r.body(message.Content, message.Text, text)
}

// parseLength reads a decimal number of at most maxRlen.
func parseLength(digits []byte) (n int, ok bool) {
	if len(digits) == 0 || len(digits) > 4 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= maxRlen
}

// serveSeparate acknowledges at once and answers later with a description of the request.
func (r *request) serveSeparate() {
	if _, ok := r.accepts(message.Text); !ok || !r.noQuery() {
		return
	}
	m := r.message
	text := make([]byte, 0, 96)
	text = append(text, "Type: "...)
	text = strconv.AppendInt(text, int64(m.Type), 10)
	text = append(text, " ("+m.Type.String()+")\nCode: "...)
	text = strconv.AppendInt(text, int64(m.Code), 10)
	text = append(text, " ("+m.Code.Name()+")\nMID: "...)
	text = strconv.AppendInt(text, int64(m.ID), 10)
	if len(m.Token) > 0 {
		text = append(text, "\nToken: "...)
		for _, c := range m.Token {
			text = append(text, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
	}
	r.reply.Separate(r.handler.listener.cfg.SeparateDelay)
	if r.part(message.Content, message.Text, text, 0, maxExponent, false) {
		return
	}
	// The text differs for each request, so its blocks would not fit together.
	short, _, _ := bytes.Cut(text, []byte("\nMID"))
	if !r.part(message.Content, message.Text, short, 0, maxExponent, false) {
		r.challenge()
	}
}
