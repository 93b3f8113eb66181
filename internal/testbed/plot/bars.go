package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Bars compares named values, horizontally, so that long names stay readable.
// Values in one Group share a line of the picture and a colour per Series name.
type Bars struct {
	Title, Note string
	Unit        string   // unit of every value, written once
	Names       []string // what the bars of each group are; its order gives the colours
	Groups      []Group
}

// Group is one row of bars; Values has the length of Bars.Names, NaN where a value
// was not measured. Spread, if given, is the lowest and highest value of the rounds.
type Group struct {
	Name   string
	Values []float64
	Spread [][2]float64
}

const (
	barHeight = 15.0
	barGap    = 14.0
)

// saved is how much lower a group of several bars is because all of them are 0, which a few words say.
func (g Group) saved() float64 {
	if len(g.Values) < 2 || len(g.Spread) > 0 || slices.ContainsFunc(g.Values, func(v float64) bool { return v != 0 }) {
		return 0
	}
	return float64(len(g.Values)-1) * barHeight
}

func (c Bars) heading() (string, string) { return c.Title, c.Note }

func (c Bars) svg(b *strings.Builder, narrow bool) {
	f := newFrame(narrow)
	f.left = 230
	name := 0.0 // a line of its own for the name of a group
	if narrow {
		f.left, f.right, name = 10, 60, 18
	}
	if len(c.Names) < 2 {
		f.top = 20 // nothing to distinguish
	}
	entries := make([]entry, len(c.Names))
	for i, name := range c.Names {
		entries[i] = entry{name, fmt.Sprintf("s%d", i%8)}
	}
	plain := newFrame(narrow)
	legend := plain.fold(entries, "")
	f.grow(legend)
	maxV := c.largest()
	across := 6
	if narrow {
		across = 3
	} else {
		f.right = 70
	}
	vt := ticks(maxV, across)
	topV := vt[len(vt)-1]
	per := float64(max(len(c.Names), 1))*barHeight + barGap + name
	f.height = f.top + f.below
	for _, g := range c.Groups {
		f.height += per - g.saved()
	}
	px := func(v float64) float64 { return f.left + v/topV*(f.width-f.left-f.right) }

	f.open(b, c.Title)
	for _, v := range vt {
		fmt.Fprintf(b, `<line class="g" x1="%s" x2="%s" y1="%s" y2="%s"/><text class="t" x="%s" y="%s" text-anchor="middle">%s</text>`,
			xy(px(v)), xy(px(v)), xy(f.top-6), xy(f.height-f.below+4), xy(px(v)), xy(f.height-f.below+20), number(v))
	}
	fmt.Fprintf(b, `<text class="l" x="%s" y="%s" text-anchor="end">%s</text>`, xy(f.width-8), xy(f.height-6), html.EscapeString(c.Unit))
	y := f.top
	for _, g := range c.Groups {
		x, baseline, anchor := f.left-10, y+(float64(len(g.Values))*barHeight-g.saved())/2+4, "end"
		if narrow {
			x, baseline, anchor = f.left, y+12, "start"
		}
		fmt.Fprintf(b, `<text class="n" x="%s" y="%s" text-anchor="%s">%s</text>`, xy(x), xy(baseline), anchor, html.EscapeString(g.Name))
		if g.saved() > 0 {
			fmt.Fprintf(b, `<text class="t" x="%s" y="%s">all 0</text>`, xy(px(0)+6), xy(y+name+12))
		} else {
			for i, v := range g.Values {
				c.bar(b, g, i, v, y+name+float64(i)*barHeight, px)
			}
		}
		y += per - g.saved()
	}
	f.right = plain.right
	f.legend(b, legend)
	b.WriteString("</svg>")
}

// largest is the largest value, of all rounds.
func (c Bars) largest() float64 {
	maxV := 0.0
	for _, g := range c.Groups {
		for i, v := range g.Values {
			if !math.IsNaN(v) {
				maxV = math.Max(maxV, v)
			}
			if i < len(g.Spread) {
				maxV = math.Max(maxV, g.Spread[i][1])
			}
		}
	}
	return maxV
}

func (c Bars) bar(b *strings.Builder, g Group, i int, v, y float64, px func(float64) float64) {
	if math.IsNaN(v) {
		fmt.Fprintf(b, `<text class="t" x="%s" y="%s">not measured</text>`, xy(px(0)+6), xy(y+11))
		return
	}
	name := ""
	if i < len(c.Names) {
		name = ", " + c.Names[i]
	}
	fmt.Fprintf(b, `<g><title>%s%s: %s %s</title><rect class="s%d f" x="%s" y="%s" width="%s" height="%s" rx="2"/>`,
		html.EscapeString(g.Name), html.EscapeString(name), number(v), html.EscapeString(c.Unit), i%8,
		xy(px(0)), xy(y+1), xy(math.Max(px(v)-px(0), 1)), xy(barHeight-2))
	end := v
	if i < len(g.Spread) {
		lo, hi := g.Spread[i][0], g.Spread[i][1]
		end = math.Max(end, hi)
		fmt.Fprintf(b, `<line class="w" x1="%s" x2="%s" y1="%s" y2="%s"/>`, xy(px(lo)), xy(px(hi)), xy(y+barHeight/2), xy(y+barHeight/2))
	}
	fmt.Fprintf(b, `<text class="t" x="%s" y="%s">%s</text></g>`, xy(px(end)+6), xy(y+12), number(v))
}
