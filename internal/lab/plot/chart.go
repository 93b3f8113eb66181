package plot

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Figure is something a Report can show: a Chart or Bars.
type Figure interface {
	heading() (title, note string)
	svg(b *strings.Builder)
}

// Series is one line. X and Y have the same length; X grows. A NaN in Y breaks the
// line: nothing was measured there, which is not zero.
type Series struct {
	Name string
	X, Y []float64
}

// Event is a moment that the reader should be able to see a line react to.
type Event struct {
	X     float64
	Label string
}

// Level is a height that a line should be read against, such as a ceiling.
type Level struct {
	Y     float64
	Label string
}

// Chart is lines over one x axis, from zero upwards.
type Chart struct {
	Title, Note    string
	XLabel, YLabel string // name and unit of the axes; XLabel defaults to "seconds"
	Series         []Series
	Events         []Event
	Levels         []Level
}

// dense is how many points of a line are too many to be drawn.
const dense = 150

const (
	width, height           = 920.0, 300.0
	left, right, top, below = 62.0, 16.0, 34.0, 44.0
)

func (c Chart) heading() (string, string) { return c.Title, c.Note }

func (c Chart) svg(b *strings.Builder) {
	maxX, maxY := 0.0, 0.0
	for _, s := range c.Series {
		for i, y := range s.Y {
			maxX = math.Max(maxX, s.X[i])
			if !math.IsNaN(y) {
				maxY = math.Max(maxY, y)
			}
		}
	}
	for _, l := range c.Levels {
		maxY = math.Max(maxY, l.Y)
	}
	for _, e := range c.Events {
		maxX = math.Max(maxX, e.X)
	}
	if maxX <= 0 {
		maxX = 1
	}
	yt := ticks(maxY, 5)
	topY := yt[len(yt)-1]
	px := func(x float64) float64 { return left + x/maxX*(width-left-right) }
	py := func(y float64) float64 { return height - below - y/topY*(height-top-below) }

	open(b, height, c.Title)
	axisY(b, yt, py, c.YLabel)
	for _, x := range ticks(maxX, 10) {
		if x <= maxX {
			fmt.Fprintf(b, `<text class="t" x="%s" y="%s" text-anchor="middle">%s</text>`, xy(px(x)), xy(height-below+16), number(x))
		}
	}
	label := c.XLabel
	if label == "" {
		label = "seconds"
	}
	fmt.Fprintf(b, `<text class="l" x="%s" y="%s" text-anchor="end">%s</text>`, xy(width-right), xy(height-8), html.EscapeString(label))

	c.events(b, px)
	for i, s := range c.Series {
		line(b, s, i, px, py)
	}
	c.levels(b, py) // its words lie above the lines
	names := make([]string, len(c.Series))
	for i, s := range c.Series {
		names[i] = s.Name
	}
	legend(b, names)
	b.WriteString("</svg>")
}

// levels draws a dotted line and its words for each level; words that would run into each other change sides.
func (c Chart) levels(b *strings.Builder, py func(float64) float64) {
	sorted := slices.SortedStableFunc(slices.Values(c.Levels), func(a, b Level) int { return -cmp.Compare(a.Y, b.Y) })
	last := [2]float64{-100, -100} // baselines on the right and on the left
	for _, l := range sorted {
		y := py(l.Y)
		side, x, anchor := 0, width-right-6, "end"
		if text := y - 4; text-last[0] < 13 && last[1] < last[0] {
			side, x, anchor = 1, left+6, "start"
		}
		text := math.Max(y-4, last[side]+13)
		last[side] = text
		fmt.Fprintf(b, `<g class="v"><line x1="%s" x2="%s" y1="%s" y2="%s"/><text x="%s" y="%s" text-anchor="%s">%s</text></g>`,
			xy(left), xy(width-right), xy(y), xy(y), xy(x), xy(text), anchor, html.EscapeString(l.Label))
	}
}

// events draws a dashed line and a number for each event; the words stand below the
// picture, where they cannot run into each other.
func (c Chart) events(b *strings.Builder, px func(float64) float64) {
	for i, e := range c.Events {
		x := xy(px(e.X))
		fmt.Fprintf(b, `<g class="e"><title>%s at %s</title><line x1="%s" x2="%s" y1="%s" y2="%s"/><circle cx="%s" cy="%s" r="8"/><text x="%s" y="%s" text-anchor="middle">%d</text></g>`,
			html.EscapeString(e.Label), number(e.X), x, x, xy(top), xy(height-below), x, xy(top-2), x, xy(top+2), i+1)
	}
}

func line(b *strings.Builder, s Series, i int, px, py func(float64) float64) {
	class := fmt.Sprintf("s%d", i%8)
	var run []string
	flush := func() {
		if len(run) > 1 {
			fmt.Fprintf(b, `<polyline class="%s" points="%s"/>`, class, strings.Join(run, " "))
		}
		run = run[:0]
	}
	for j, y := range s.Y {
		if math.IsNaN(y) {
			flush()
			continue
		}
		run = append(run, point(px(s.X[j]), py(y)))
	}
	flush()
	point := `p" r="2.5"`
	if len(s.Y) > dense { // points would hide the line: they show under the pointer only
		point = `p h" r="4"`
	}
	for j, y := range s.Y {
		if !math.IsNaN(y) {
			fmt.Fprintf(b, `<circle class="%s %s cx="%s" cy="%s"><title>%s: %s at %s</title></circle>`,
				class, point, xy(px(s.X[j])), xy(py(y)), html.EscapeString(s.Name), number(y), number(s.X[j]))
		}
	}
}

func open(b *strings.Builder, h float64, title string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`, xy(width), xy(h), html.EscapeString(title))
}

func axisY(b *strings.Builder, yt []float64, py func(float64) float64, label string) {
	for _, y := range yt {
		fmt.Fprintf(b, `<line class="g" x1="%s" x2="%s" y1="%s" y2="%s"/><text class="t" x="%s" y="%s" text-anchor="end">%s</text>`,
			xy(left), xy(width-right), xy(py(y)), xy(py(y)), xy(left-8), xy(py(y)+4), number(y))
	}
	fmt.Fprintf(b, `<text class="l" x="4" y="14">%s</text>`, html.EscapeString(label))
}

func legend(b *strings.Builder, names []string) {
	if len(names) < 2 {
		return
	}
	x := width - right
	for i := len(names) - 1; i >= 0; i-- {
		x -= float64(len([]rune(names[i])))*7 + 26
		fmt.Fprintf(b, `<rect class="s%d f" x="%s" y="4" width="12" height="12" rx="2"/><text class="l" x="%s" y="14">%s</text>`,
			i%8, xy(x), xy(x+17), html.EscapeString(names[i]))
	}
}
