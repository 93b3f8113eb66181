package plot

import (
	"fmt"
	"html"
	"strings"
)

// Topology is a picture of what talked to what: clients, what they talk through, and the nodes behind it. It goes from
// left to right, on a narrow page from top to bottom.
type Topology struct {
	Title, Note string
	Clients     []Box
	Via         Box
	Nodes       []Box
	Among       string // what the nodes send to each other; empty: nothing
}

// Box is one of them.
type Box struct {
	Name, Detail string
	Muted        bool
}

// rectangle is where a box stands.
type rectangle struct{ x, y, w, h float64 }

func (r rectangle) centre() (x, y float64) { return r.x + r.w/2, r.y + r.h/2 }

const (
	boxHeight = 46.0
	boxGap    = 16.0
)

func (c Topology) heading() (string, string) { return c.Title, c.Note }

func (c Topology) svg(b *strings.Builder, narrow bool) {
	f := newFrame(narrow)
	clients, via, nodes := make([]rectangle, len(c.Clients)), rectangle{}, make([]rectangle, len(c.Nodes))
	if narrow {
		row := func(boxes []rectangle, y float64) {
			w := (f.width - 20 - float64(len(boxes)-1)*8) / float64(len(boxes))
			for i := range boxes {
				boxes[i] = rectangle{10 + float64(i)*(w+8), y, w, boxHeight}
			}
		}
		row(clients, 12)
		via = rectangle{50, 106, f.width - 100, boxHeight}
		row(nodes, 200)
		if f.height = 302; c.Among == "" {
			f.height = 258
		}
	} else {
		largest := float64(max(len(clients), len(nodes)))
		f.height = largest*boxHeight + (largest-1)*boxGap + 24
		column := func(boxes []rectangle, x, w float64) {
			y := (f.height - float64(len(boxes))*boxHeight - float64(len(boxes)-1)*boxGap) / 2
			for i := range boxes {
				boxes[i] = rectangle{x, y + float64(i)*(boxHeight+boxGap), w, boxHeight}
			}
		}
		column(clients, 16, 230)
		one := make([]rectangle, 1)
		column(one, 340, 190)
		via = one[0]
		if column(nodes, 620, 130); c.Among == "" {
			column(nodes, 690, 214)
		}
	}
	f.open(b, c.Title)
	for i, r := range clients {
		f.arrow(b, r, via, c.Clients[i].Muted)
	}
	for _, r := range nodes {
		f.arrow(b, via, r, false)
	}
	c.among(b, f, nodes)
	for i, r := range clients {
		c.Clients[i].svg(b, r)
	}
	c.Via.svg(b, via)
	for i, r := range nodes {
		c.Nodes[i].svg(b, r)
	}
	b.WriteString("</svg>")
}

// arrow leads from one box to the next.
func (f frame) arrow(b *strings.Builder, from, to rectangle, muted bool) {
	x1, y1 := from.centre()
	x2, y2 := to.centre()
	if f.narrow {
		y1, y2 = from.y+from.h, to.y-2
		x2 = x1 + (x2-x1)*0.6 // they meet side by side
		if from.w > to.w {
			x1, x2 = x1+(to.x+to.w/2-x1)*0.6, to.x+to.w/2
		}
	} else {
		x1, x2 = from.x+from.w, to.x-2
		if from.h == to.h {
			y2 = to.y + to.h/2
		}
	}
	class := "a"
	if muted {
		class = "a q"
	}
	fmt.Fprintf(b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, xy(x1), xy(y1), xy(x2), xy(y2))
}

// among joins the nodes and says what they send to each other.
func (c Topology) among(b *strings.Builder, f frame, nodes []rectangle) {
	if c.Among == "" || len(nodes) < 2 {
		return
	}
	first, last := nodes[0], nodes[len(nodes)-1]
	if f.narrow {
		y := first.y + first.h
		fmt.Fprintf(b, `<path class="a" d="M%s %sv12H%sv-12"/>`, xy(first.x+first.w/2), xy(y), xy(last.x+last.w/2))
		for _, r := range nodes[1 : len(nodes)-1] {
			fmt.Fprintf(b, `<path class="a" d="M%s %sv12"/>`, xy(r.x+r.w/2), xy(y))
		}
		f.words(b, c.Among, f.width/2, y+28, "middle", 50)
		return
	}
	x := first.x + first.w
	fmt.Fprintf(b, `<path class="a" d="M%s %sh14V%sh-14"/>`, xy(x), xy(first.y+first.h/2), xy(last.y+last.h/2))
	for _, r := range nodes[1 : len(nodes)-1] {
		fmt.Fprintf(b, `<path class="a" d="M%s %sh14"/>`, xy(x), xy(r.y+r.h/2))
	}
	f.words(b, c.Among, x+24, f.height/2, "start", 20)
}

// words breaks a sentence into lines of at most so many characters.
func (f frame) words(b *strings.Builder, text string, x, y float64, anchor string, largest int) {
	var lines []string
	for _, word := range strings.Fields(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+len(word) < largest {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	if !f.narrow {
		y -= float64(len(lines)-1)*8 - 4
	}
	for i, line := range lines {
		fmt.Fprintf(b, `<text class="t" x="%s" y="%s" text-anchor="%s">%s</text>`, xy(x), xy(y+float64(i)*16), anchor, html.EscapeString(line))
	}
}

func (c Box) svg(b *strings.Builder, r rectangle) {
	class := "b"
	if c.Muted {
		class = "b q"
	}
	x, y := r.centre()
	fmt.Fprintf(b, `<g class="%s"><rect x="%s" y="%s" width="%s" height="%s" rx="6"/><text class="n" x="%s" y="%s" text-anchor="middle">%s</text><text class="t" x="%s" y="%s" text-anchor="middle">%s</text></g>`,
		class, xy(r.x), xy(r.y), xy(r.w), xy(r.h), xy(x), xy(y-3), html.EscapeString(c.Name), xy(x), xy(y+15), html.EscapeString(c.Detail))
}
