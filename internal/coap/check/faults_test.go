package check_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/check"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// faultCase is a fault, the cases that it must turn to fail, and a part of what these say that they expected.
type faultCase struct {
	name  string
	cases string
	want  string
	fault
}

// response makes a fault of the responses to all requests but those for the discovery document.
func response(change func(w *way, p *parts) *parts) fault {
	return fault{answer: func(w *way, p *parts) *parts {
		if !p.code.IsResponse() || w.request(p).path() == "/.well-known/core" {
			return p
		}
		return change(w, p)
	}}
}

// on makes a fault of the responses to requests for a path.
func on(path string, change func(w *way, p *parts) *parts) fault {
	return response(func(w *way, p *parts) *parts {
		if w.request(p).path() != path {
			return p
		}
		return change(w, p)
	})
}

// asked makes a fault of the requests.
func asked(change func(p *parts)) fault {
	return fault{request: func(_ *way, p *parts, _ func(*parts)) *parts {
		change(p)
		return p
	}}
}

// notified makes a fault of notifications: of messages with Observe that are not the response to the registration.
func notified(change func(w *way, p *parts) *parts) fault {
	return response(func(w *way, p *parts) *parts {
		if _, ok := w.request(p).get(message.Observe); !ok || p.Type == message.Ack {
			return p
		}
		w.notified[string(p.token)]++
		if p.Type == message.Non && w.notified[string(p.token)] == 1 && w.request(p).Type == message.Non {
			return p // the response to a non-confirmable registration
		}
		return change(w, p)
	})
}

// without drops an option of all responses.
func without(id message.OptionID) fault {
	return response(func(_ *way, p *parts) *parts { p.drop(id); return p })
}

func core(numbers string) string { return ids("CORE", numbers) }

func ids(group, numbers string) string {
	return group + "_" + strings.ReplaceAll(numbers, " ", " "+group+"_")
}

// blockFault changes the numbers of a block option.
func blockFault(id message.OptionID, change func(n uint32) uint32) fault {
	return response(func(_ *way, p *parts) *parts {
		if n, ok := p.number(id); ok {
			p.set(id, change(n))
		}
		return p
	})
}

func messageFaults() []faultCase {
	everything := strings.Join([]string{
		core("01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23"), ids("BLOCK", "01 02 03 04 05 06"), ids("OBS", "01 02 06 07 09 12 13"), ids("LINK", "09"),
	}, " ")
	return []faultCase{
		{"another code", everything, "", response(func(_ *way, p *parts) *parts {
			switch {
			case p.code == message.Content:
				p.code = message.Changed
			case p.code.Class() == 2:
				p.code = message.Content
			}
			return p
		})},
		{"another token", core("01 02 03 04 10 12 15") + " " + ids("BLOCK", "01 04"), "token", response(func(_ *way, p *parts) *parts {
			if p.token = bytes.Clone(p.token); len(p.token) == 0 {
				p.token = []byte{1}
			}
			p.token[0]++
			return p
		})},
		{"another token of separate responses", core("05 09 11 16 17"), "a response", response(func(_ *way, p *parts) *parts {
			if p.token = bytes.Clone(p.token); p.Type != message.Ack {
				p.token[0]++
			}
			return p
		})},
		{"another message id", core("01 02 10 15 18") + " " + ids("BLOCK", "03 06") + " " + ids("OBS", "01"), "message id", response(func(_ *way, p *parts) *parts {
			if p.Type == message.Ack {
				p.id++
			}
			return p
		})},
		{"silence", core("01 05 09 19"), "a response", response(func(*way, *parts) *parts { return nil })},
		{"a critical option that no server knows", core("01 09 22") + " " + ids("LINK", "09") + " " + ids("OBS", "01"), "no unknown critical option", response(func(_ *way, p *parts) *parts {
			p.options = append(p.options, client.Option{ID: 65001, Value: []byte("x")})
			return p
		})},
		{"reset of requests", core("01 05 18"), "no reset", response(func(w *way, p *parts) *parts {
			return &parts{Type: message.Rst, id: w.request(p).id}
		})},
		{"no content format", core("01 05 09 10 11 12 13 14 17") + " " + ids("OBS", "01 02") + " " + ids("BLOCK", "01 02 05 06"), "Content-Format", without(message.ContentFormat)},
		{"no payload", core("01 09 10 12 13 14 15 16 17 20 21 22"), "a payload", response(func(_ *way, p *parts) *parts { p.payload = nil; return p })},
		{"a payload without content format", core("02 03 04 06 07 08 19 23"), "Content-Format option with a payload", response(func(_ *way, p *parts) *parts {
			if p.drop(message.ContentFormat); len(p.payload) == 0 {
				p.payload = []byte("done")
			}
			return p
		})},
		{"an acknowledgement of NON", core("05 06 07 08 17"), "no acknowledgement of a non-confirmable", response(func(w *way, p *parts) *parts {
			if r := w.request(p); r.Type == message.Non {
				p.Type, p.id = message.Ack, r.id
			}
			return p
		})},
		{"CON in answer to NON", core("05 06 07 08 17"), "type NON", response(func(w *way, p *parts) *parts {
			if w.request(p).Type == message.Non {
				p.Type = message.Con
			}
			return p
		})},
		{"NON in answer to CON", core("09 11 16"), "type CON", response(func(_ *way, p *parts) *parts {
			if p.Type == message.Con {
				p.Type = message.Non
			}
			return p
		})},
		{"no separate response", core("09 11 16"), "a separate response", fault{answer: func(w *way, p *parts) *parts {
			switch {
			case p.code == message.Empty && p.Type == message.Ack:
				return nil
			case p.Type == message.Con:
				p.Type, p.id = message.Ack, w.request(p).id
			}
			return p
		}}},
		{"no acknowledgement before the separate response", core("09 11"), "an empty acknowledgement", fault{answer: func(_ *way, p *parts) *parts {
			if p.code == message.Empty && p.Type == message.Ack {
				return nil
			}
			return p
		}}},
		{"no retransmission", core("16") + " " + ids("OBS", "11"), "again", fault{answer: func(w *way, p *parts) *parts {
			if p.Type == message.Con && w.came[p.id] > 1 {
				return nil
			}
			return p
		}}},
		{"acknowledgements are not understood", core("16"), "no further repetition", fault{request: func(_ *way, p *parts, _ func(*parts)) *parts {
			if p.Type == message.Ack {
				return nil
			}
			return p
		}}},
		{"repeated requests are ignored", core("15"), "a response", fault{request: func(w *way, p *parts, _ func(*parts)) *parts {
			if w.seen[p.id] > 1 {
				return nil
			}
			return p
		}}},
		{"one acknowledgement for two copies", core("16"), "each copy", fault{request: func(w *way, p *parts, _ func(*parts)) *parts {
			if w.seen[p.id] > 1 && p.code.IsRequest() {
				return nil
			}
			return p
		}}},
		{"repeated requests are executed again", core("15"), "not executed again", fault{
			request: func(w *way, p *parts, _ func(*parts)) *parts {
				if w.seen[p.id] > 1 && p.code == message.POST {
					again := *p
					again.id += 0x4000
					w.mids[again.id] = p.id
					return &again
				}
				return p
			},
			answer: func(w *way, p *parts) *parts {
				if id, ok := w.mids[p.id]; ok && p.Type == message.Ack {
					p.id = id
				}
				return p
			},
		}},
		{"an acknowledgement of a ping", core("31"), "RST", fault{answer: func(_ *way, p *parts) *parts {
			if p.Type == message.Rst {
				p.Type = message.Ack
			}
			return p
		}}},
		{"no answer to a ping", core("31"), "a reset", fault{answer: func(_ *way, p *parts) *parts {
			if p.Type == message.Rst {
				return nil
			}
			return p
		}}},
	}
}

func storedFaults() []faultCase {
	joined := func(id message.OptionID) fault {
		return response(func(_ *way, p *parts) *parts {
			if values, ok := p.get(id); ok {
				p.drop(id)
				p.options = append(p.options, client.Option{ID: id, Value: []byte(strings.Join(values, "/"))})
			}
			return p
		})
	}
	ignored := func(id message.OptionID) fault { return asked(func(p *parts) { p.drop(id) }) }
	return []faultCase{
		{"no Location-Path", core("18") + " " + ids("BLOCK", "04"), "Location-Path", without(message.LocationPath)},
		{"a slash in Location-Path", core("18") + " " + ids("BLOCK", "04"), "Location-Path", joined(message.LocationPath)},
		{"no Location-Query", core("19"), "Location-Query", without(message.LocationQuery)},
		{"one Location-Query", core("19"), "Location-Query", joined(message.LocationQuery)},
		{"Accept is ignored", core("20"), "Content-Format 41", ignored(message.Accept)},
		{"no ETag", core("21 22"), "an ETag", without(message.ETag)},
		{"ETag is ignored", core("21"), "2.03", ignored(message.ETag)},
		{"2.03 with a payload", core("21"), "no payload", response(func(_ *way, p *parts) *parts {
			if p.code == message.Valid {
				p.payload = []byte("x")
			}
			return p
		})},
		{"2.03 with another ETag", core("21"), "ETag", response(func(_ *way, p *parts) *parts {
			if p.code == message.Valid {
				p.drop(message.ETag)
				p.options = append(p.options, client.Option{ID: message.ETag, Value: []byte("other")})
			}
			return p
		})},
		{"an ETag that never changes", core("22"), "an ETag other than", fault{
			request: func(_ *way, p *parts, _ func(*parts)) *parts {
				if _, ok := p.get(message.IfMatch); ok {
					p.set(message.IfMatch, 0) // any
				}
				return p
			},
			answer: func(w *way, p *parts) *parts {
				if w.request(p).path() == "/validate" && w.request(p).code == message.GET {
					p.drop(message.ETag)
					p.options = append(p.options, client.Option{ID: message.ETag, Value: []byte("same")})
				}
				return p
			},
		}},
		{"If-Match is ignored", core("22"), "4.12", ignored(message.IfMatch)},
		{"If-None-Match is ignored", core("23"), "4.12", ignored(message.IfNoneMatch)},
		{"a PUT that changes nothing", core("21 22"), "", fault{request: func(_ *way, p *parts, reply func(*parts)) *parts {
			if p.code == message.PUT && p.path() == "/validate" {
				reply(&parts{Type: message.Ack, code: message.Changed, id: p.id, token: p.token})
				return nil
			}
			return p
		}}},
		{"filters are ignored", ids("LINK", "02 03 04 05 06 07 08"), "the links", asked(func(p *parts) {
			if p.path() == "/.well-known/core" {
				p.drop(message.URIQuery)
			}
		})},
		{"discovery in another format", ids("LINK", "01 02 09"), "Content-Format 40", fault{answer: func(_ *way, p *parts) *parts {
			if n, ok := p.number(message.ContentFormat); ok && n == 40 {
				p.set(message.ContentFormat, 0)
			}
			return p
		}}},
		{"discovery that is no link format", ids("LINK", "01 02 03 04 05 06 07 08 09"), "a document in link format", fault{answer: func(_ *way, p *parts) *parts {
			p.payload = bytes.ReplaceAll(p.payload, []byte("<"), []byte("x"))
			return p
		}}},
		{"sub-resources elsewhere", ids("LINK", "09"), "links below /path", on("/path", func(_ *way, p *parts) *parts {
			p.payload = bytes.ReplaceAll(p.payload, []byte("/path/"), []byte("/other"))
			return p
		})},
	}
}

func blockFaults() []faultCase {
	larger := func(n uint32) uint32 { return n + 1 }
	return []faultCase{
		{"Block2 with another number", ids("BLOCK", "01 02 06"), "NUM", blockFault(message.Block2, func(n uint32) uint32 { return n + 1<<4 })},
		{"Block2 of another size", ids("BLOCK", "01 06"), "SZX of at most", blockFault(message.Block2, larger)},
		{"Block2 always with more to come", ids("BLOCK", "01 02 05 06"), "", blockFault(message.Block2, func(n uint32) uint32 { return n | 8 })},
		{"Block2 never with more to come", ids("BLOCK", "02 05"), "M 1", blockFault(message.Block2, func(n uint32) uint32 { return n &^ 8 })},
		{"a byte short", ids("BLOCK", "01 02 05 06"), "a payload that fills the block", response(func(_ *way, p *parts) *parts {
			if n, ok := p.number(message.Block2); ok && n&8 != 0 {
				p.payload = p.payload[:len(p.payload)-1]
			}
			return p
		})},
		{"no Block2", ids("BLOCK", "01 06"), "a Block2 option", without(message.Block2)},
		{"a gap", ids("BLOCK", "01 02 06"), "the same representation", fault{
			request: func(_ *way, p *parts, _ func(*parts)) *parts {
				changed := *p
				changed.options = slices.Clone(p.options)
				if n, ok := p.number(message.Block2); ok && n>>4 > 0 {
					changed.set(message.Block2, n+1<<4)
				}
				return &changed
			},
			answer: func(w *way, p *parts) *parts {
				if wanted, ok := w.request(p).number(message.Block2); ok && wanted>>4 > 0 {
					if n, ok := p.number(message.Block2); ok {
						p.set(message.Block2, n-1<<4)
					}
				}
				return p
			},
		}},
		{"another ETag with each block", ids("BLOCK", "01 02 06"), "the ETag", response(func(_ *way, p *parts) *parts {
			if _, ok := p.get(message.Block2); ok {
				p.drop(message.ETag)
				p.options = append(p.options, client.Option{ID: message.ETag, Value: []byte{byte(p.id), byte(p.id >> 8)}})
			}
			return p
		})},
		{"Block1 with another number", ids("BLOCK", "03 04 05"), "NUM", blockFault(message.Block1, func(n uint32) uint32 { return n + 1<<4 })},
		{"Block1 of another size", ids("BLOCK", "03 04 05"), "SZX of at most 2", blockFault(message.Block1, larger)},
		{"Block1 always with more to come", ids("BLOCK", "03 04 05"), "M 0", blockFault(message.Block1, func(n uint32) uint32 { return n | 8 })},
		{"Block1 never with more to come", ids("BLOCK", "03 04 05"), "M 1", blockFault(message.Block1, func(n uint32) uint32 { return n &^ 8 })},
		{"no Block1", ids("BLOCK", "03 04 05"), "Block1", without(message.Block1)},
		{"a success for each block", ids("BLOCK", "04 05"), "2.31", response(func(_ *way, p *parts) *parts {
			if n, ok := p.number(message.Block1); ok && p.code == message.Continue {
				p.code = message.Changed
				p.set(message.Block1, n&^8)
			}
			return p
		})},
		{"a block that is stored wrong", ids("BLOCK", "03 04"), "bytes that were sent", asked(func(p *parts) {
			if n, ok := p.number(message.Block1); ok && n>>4 == 3 {
				p.payload = bytes.ToUpper(p.payload)
			}
		})},
	}
}

func observeFaults() []faultCase {
	every := ids("OBS", "01 02 04 05 06 07 08 09 10 11 12 13 14")
	dropCode := func(code message.Code) fault {
		return response(func(_ *way, p *parts) *parts {
			if p.code == code && p.Type != message.Ack {
				return nil
			}
			return p
		})
	}
	answered := func(code message.Code, path string) fault {
		return fault{request: func(_ *way, p *parts, reply func(*parts)) *parts {
			if p.code == code && p.path() == path {
				reply(&parts{Type: message.Ack, code: message.Changed, id: p.id, token: p.token})
				return nil
			}
			return p
		}}
	}
	unstoppable := notified(func(w *way, p *parts) *parts {
		w.up(&parts{Type: message.Ack, id: p.id})
		return p
	})
	return []faultCase{
		{"no registration", every, "an Observe option", without(message.Observe)},
		{"no notification", every, "a notification", notified(func(*way, *parts) *parts { return nil })},
		{"a sequence number that stays", every, "newer", notified(func(_ *way, p *parts) *parts { p.set(message.Observe, 1); return p })},
		{"notifications with another token", ids("OBS", "01 04 06 10"), "with the token", notified(func(_ *way, p *parts) *parts {
			p.token = append(bytes.Clone(p.token[:3]), p.token[3]+1)
			return p
		})},
		{"notifications in another format", ids("OBS", "01 02 10 13"), "Content-Format 0", notified(func(_ *way, p *parts) *parts { p.set(message.ContentFormat, 50); return p })},
		{"NON notifications", ids("OBS", "01 04 05 06 07 08 09 10 11 12"), "type CON", notified(func(_ *way, p *parts) *parts { p.Type = message.Non; return p })},
		{"CON notifications", ids("OBS", "02"), "non-confirmable notifications", notified(func(_ *way, p *parts) *parts { p.Type = message.Con; return p })},
		{"a registration that is not forgotten", ids("OBS", "04"), "no further notification", answered(message.POST, "/obs-reset")},
		{"a reset that is ignored", ids("OBS", "06"), "no further notification", fault{request: func(_ *way, p *parts, _ func(*parts)) *parts {
			if p.Type == message.Rst {
				p.Type = message.Ack
			}
			return p
		}}},
		{"a client that is never given up", ids("OBS", "05"), "an end of the observation", unstoppable},
		{"notifications in addition to the one that is not acknowledged", ids("OBS", "11"), "no other notification", unstoppable},
		{"the same notification with other message ids", ids("OBS", "11"), "newer", notified(func(w *way, p *parts) *parts { p.id += uint16(w.notified[string(p.token)]) << 8; return p })},
		{"no 4.04 after a DELETE", ids("OBS", "07"), "a notification with 4.04", dropCode(message.NotFound)},
		{"no 4.06 after a change of format", ids("OBS", "08"), "a notification with 4.06", dropCode(message.NotAcceptable)},
		{"Observe in the last notification", ids("OBS", "07 08"), "no Observe", notified(func(_ *way, p *parts) *parts {
			if p.code.Class() == 4 {
				p.set(message.Observe, 0xffff)
			}
			return p
		})},
		{"a change that is not notified", ids("OBS", "09"), "with that payload", answered(message.PUT, "/obs")},
		{"a GET ends the observation", ids("OBS", "10"), "a notification", fault{
			request: func(w *way, p *parts, _ func(*parts)) *parts {
				if _, observed := p.get(message.Observe); p.code == message.GET && p.path() == "/obs" && !observed {
					w.flag = true
				}
				return p
			},
			answer: func(w *way, p *parts) *parts {
				if w.flag && p.Type == message.Con {
					return nil
				}
				return p
			},
		}},
		{"Observe in the answer to a GET", ids("OBS", "10 12"), "no Observe", on("/obs", func(_ *way, p *parts) *parts {
			if p.Type == message.Ack {
				p.set(message.Observe, 1)
			}
			return p
		})},
		{"Observe 1 registers", ids("OBS", "12"), "no further notification", fault{
			request: func(w *way, p *parts, _ func(*parts)) *parts {
				if n, ok := p.number(message.Observe); ok && n == 1 {
					w.flag = true
					p.set(message.Observe, 0)
				}
				return p
			},
			answer: func(w *way, p *parts) *parts {
				if w.flag && p.Type == message.Ack {
					p.drop(message.Observe)
				}
				return p
			},
		}},
		{"notifications with another block", ids("OBS", "13 14"), "NUM 0", blockFault(message.Block2, func(n uint32) uint32 { return n + 1<<4 })},
		{"a block of a notification is not there", ids("OBS", "13 14"), "code 2.05", response(func(w *way, p *parts) *parts {
			if n, ok := w.request(p).number(message.Block2); ok && n>>4 > 0 {
				p.code = message.BadRequest
			}
			return p
		})},
	}
}

// Every fault of a server makes the cases fail that are about it, and every case but those of DTLS can fail.
func TestFaultsAreFound(t *testing.T) {
	clitest.TakesSeconds(t)
	can := map[string]bool{}
	for _, f := range slices.Concat(messageFaults(), storedFaults(), blockFaults(), observeFaults()) {
		only := strings.Fields(f.cases)
		for _, id := range only {
			can["TD_COAP_"+id] = true
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cfg := plugtest()
			cfg.DTLS, cfg.TCP, cfg.TLS = nil, nil, nil
			cfg.NotifyInterval, cfg.SeparateDelay = 100*time.Millisecond, 300*time.Millisecond
			uri := faulty(t, serve(t, cfg)[0], f.fault)
			out, err := check.Run(t.Context(), check.Config{URI: uri, Only: only, Timeout: 4 * time.Second, Notify: 4 * time.Second, Abandon: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Cases) != len(only) {
				t.Errorf("%d cases, want %d", len(out.Cases), len(only))
			}
			for _, c := range out.Cases {
				if c.Verdict != check.Fail || !strings.Contains(c.Expected, f.want) {
					t.Errorf("%s: %s, %q; want a failure that expected %q\n%s", c.ID, c.Verdict, c.Reason, f.want, strings.Join(c.Trace, "\n"))
				}
			}
		})
	}
	for _, c := range check.Cases() {
		if !can[c.ID] && c.Group() != "DTLS" {
			t.Errorf("no fault makes %s fail", c.ID)
		}
	}
}
