package plot

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Figure is something a Report can show: a Chart, Bars or a Topology. Each is drawn twice, for wide pages and for narrow
// ones: one picture made smaller could not be read on a telephone.
type Figure interface {
	heading() (title, note string)
	svg(b *strings.Builder, narrow bool)
}

// Series is one line. X and Y have the same length; X grows. A NaN in Y breaks the
// line: nothing was measured there, which is not zero.
type Series struct {
	Name  string
	X, Y  []float64
	Muted bool // grey: what another series is compared with
	Steps bool // each value holds from the X before, the first one from 0, to its own, as a count or a mean of that time does
}

// class is the colour of the series with this number.
func (s Series) class(number int) string {
	if s.Muted {
		return "m"
	}
	return fmt.Sprintf("s%d", number%8)
}

// Event is a moment that the reader should be able to see a line react to.
type Event struct {
	X     float64
	Label string
	Short string // a word for the chart itself, where there is room; empty: the number alone
}

// Mark is a word above a point of a line.
type Mark struct {
	X, Y float64
	Text string
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
	Ticks          []Tick // words below the x axis instead of round numbers
	Series         []Series
	Events         []Event
	Levels         []Level
	Marks          []Mark
	Log            bool // the y axis is logarithmic: values of 0 are not drawn
}

// Tick is a word at X below the axis.
type Tick struct {
	X    float64
	Text string
}

// dense is how many points of a line are too many to be drawn.
const dense = 150

// frame is the picture and the margins around what is drawn, in pixels of a page that is as wide as the picture.
type frame struct {
	width, height           float64
	left, right, top, below float64
	narrow                  bool
}

func newFrame(narrow bool) frame {
	if narrow {
		return frame{360, 250, 44, 10, 56, 44, true}
	}
	return frame{920, 300, 62, 16, 34, 44, false}
}

func (c Chart) heading() (string, string) { return c.Title, c.Note }

func (c Chart) svg(b *strings.Builder, narrow bool) {
	f := newFrame(narrow)
	var entries []entry
	for i, s := range c.Series {
		if slices.ContainsFunc(s.Y, func(y float64) bool { return !math.IsNaN(y) }) {
			entries = append(entries, entry{s.Name, s.class(i)})
		}
	}
	legend := f.fold(entries, c.YLabel)
	f.height += f.grow(legend)
	minX, maxX, maxY := c.bounds()
	px := func(x float64) float64 { return f.left + (x-minX)/(maxX-minX)*(f.width-f.left-f.right) }
	yt, share := c.scale(maxY)
	py := func(y float64) float64 { return f.height - f.below - share(y)*(f.height-f.top-f.below) }

	f.open(b, c.Title)
	f.axisY(b, yt, py, c.YLabel)
	for _, tick := range c.ticks(minX, maxX, narrow) {
		// The last one stays in the picture.
		x := math.Min(px(tick.X), f.width-2-textWidth(tick.Text)/2)
		fmt.Fprintf(b, `<text class="t" x="%s" y="%s" text-anchor="middle">%s</text>`, xy(x), xy(f.height-f.below+16), html.EscapeString(tick.Text))
	}
	label := c.XLabel
	if label == "" {
		label = "seconds"
	}
	fmt.Fprintf(b, `<text class="l" x="%s" y="%s" text-anchor="end">%s</text>`, xy(f.width-f.right), xy(f.height-8), html.EscapeString(label))

	c.events(b, f, px)
	for i, s := range c.Series {
		if c.Log {
			s.Y = positive(s.Y)
		}
		line(b, s, i, px, py)
	}
	c.levels(b, f, py) // its words lie above the lines
	for _, m := range c.Marks {
		x := math.Min(px(m.X), f.width-f.right-textWidth(m.Text)/2)
		fmt.Fprintf(b, `<text class="k" x="%s" y="%s" text-anchor="middle">%s</text>`, xy(x), xy(math.Max(py(m.Y)-7, f.top+22)), html.EscapeString(m.Text)) // below the numbers of the events
	}
	f.legend(b, legend)
	b.WriteString("</svg>")
}

// bounds are those of what is drawn.
func (c Chart) bounds() (minX, maxX, maxY float64) {
	for _, s := range c.Series {
		for i, y := range s.Y {
			minX, maxX = math.Min(minX, s.X[i]), math.Max(maxX, s.X[i])
			if !math.IsNaN(y) {
				maxY = math.Max(maxY, y)
			}
		}
	}
	for _, l := range c.Levels {
		maxY = math.Max(maxY, l.Y)
	}
	for _, m := range c.Marks {
		maxY = math.Max(maxY, m.Y)
	}
	for _, e := range c.Events {
		maxX = math.Max(maxX, e.X)
	}
	if maxX <= 0 {
		maxX = 1
	}
	return minX, maxX, maxY
}

// ticks are the words below the x axis.
func (c Chart) ticks(minX, maxX float64, narrow bool) []Tick {
	if len(c.Ticks) > 0 {
		return c.Ticks
	}
	across := 10
	if narrow {
		across = 5
	}
	var all []Tick
	step := ticks(maxX-minX, across)[1]
	for n := math.Ceil(minX / step); n*step <= maxX; n++ {
		all = append(all, Tick{n * step, number(n*step + 0)}) // + 0: no −0
	}
	return all
}

// scale gives the lines of the y axis and what share of its height a value has.
func (c Chart) scale(maxY float64) (yt []float64, share func(float64) float64) {
	if !c.Log {
		yt = ticks(maxY, 5)
		topY := yt[len(yt)-1]
		return yt, func(y float64) float64 { return y / topY }
	}
	minY := math.Inf(1)
	for _, s := range c.Series {
		for _, y := range s.Y {
			if y > 0 {
				minY = math.Min(minY, y)
			}
		}
	}
	yt = decades(minY, maxY)
	low, high := math.Log(yt[0]), math.Log(yt[len(yt)-1])
	return yt, func(y float64) float64 { return (math.Log(y) - low) / (high - low) }
}

// positive replaces what a logarithmic axis cannot show.
func positive(values []float64) []float64 {
	values = slices.Clone(values)
	for i, v := range values {
		if !(v > 0) {
			values[i] = math.NaN()
		}
	}
	return values
}

// levels draws a dotted line and its words for each level; words that would run into each other change sides.
func (c Chart) levels(b *strings.Builder, f frame, py func(float64) float64) {
	sorted := slices.SortedStableFunc(slices.Values(c.Levels), func(a, b Level) int { return -cmp.Compare(a.Y, b.Y) })
	last := [2]float64{-100, -100} // baselines on the right and on the left
	for _, l := range sorted {
		y := py(l.Y)
		side, x, anchor := 0, f.width-f.right-6, "end"
		if text := y - 4; text-last[0] < 13 && last[1] < last[0] {
			side, x, anchor = 1, f.left+6, "start"
		}
		text := math.Max(y-4, last[side]+13)
		last[side] = text
		fmt.Fprintf(b, `<g class="v"><line x1="%s" x2="%s" y1="%s" y2="%s"/><text x="%s" y="%s" text-anchor="%s">%s</text></g>`,
			xy(f.left), xy(f.width-f.right), xy(y), xy(y), xy(x), xy(text), anchor, html.EscapeString(l.Label))
	}
}

// events draws a dashed line and a number for each event, and its short word where that does not run into the next one.
// The whole words stand in the list of the events.
func (c Chart) events(b *strings.Builder, f frame, px func(float64) float64) {
	top, last := f.top, math.Inf(-1)
	for i, e := range c.Events {
		x := xy(px(e.X))
		if f.top = top; px(e.X)-last < 17 {
			f.top += 17 // below the number of the event before, which is as near as that
			last = math.Inf(-1)
		} else {
			last = px(e.X)
		}
		fmt.Fprintf(b, `<g class="e"><title>%s at %s</title><line x1="%s" x2="%s" y1="%s" y2="%s"/><circle cx="%s" cy="%s" r="8"/><text x="%s" y="%s" text-anchor="middle">%d</text></g>`,
			html.EscapeString(e.Label), number(e.X), x, x, xy(f.top), xy(f.height-f.below), x, xy(f.top-2), x, xy(f.top+2), i+1)
		room := f.width - f.right - px(e.X) - 12
		if i+1 < len(c.Events) {
			room = px(c.Events[i+1].X) - px(e.X) - 24
		}
		if !f.narrow && e.Short != "" && textWidth(e.Short) < room {
			fmt.Fprintf(b, `<text class="l" x="%s" y="%s">%s</text>`, xy(px(e.X)+12), xy(f.top+2), html.EscapeString(e.Short))
		}
	}
}

func line(b *strings.Builder, s Series, i int, px, py func(float64) float64) {
	class := s.class(i)
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
		if s.Steps {
			from := 0.0
			if j > 0 {
				from = s.X[j-1]
			}
			run = append(run, point(px(from), py(y)))
		}
		run = append(run, point(px(s.X[j]), py(y)))
	}
	flush()
	point := `p" r="2.5"`
	if len(s.Y) > dense || s.Steps { // points would hide the line: they show under the pointer only
		point = `p h" r="4"`
	}
	for j, y := range s.Y {
		if !math.IsNaN(y) {
			fmt.Fprintf(b, `<circle class="%s %s cx="%s" cy="%s"><title>%s: %s at %s</title></circle>`,
				class, point, xy(px(s.X[j])), xy(py(y)), html.EscapeString(s.Name), number(y), number(s.X[j]))
		}
	}
}

func (f frame) open(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`, xy(f.width), xy(f.height), html.EscapeString(title))
}

func (f frame) axisY(b *strings.Builder, yt []float64, py func(float64) float64, label string) {
	for _, y := range yt {
		fmt.Fprintf(b, `<line class="g" x1="%s" x2="%s" y1="%s" y2="%s"/><text class="t" x="%s" y="%s" text-anchor="end">%s</text>`,
			xy(f.left), xy(f.width-f.right), xy(py(y)), xy(py(y)), xy(f.left-8), xy(py(y)+4), number(y))
	}
	fmt.Fprintf(b, `<text class="l" x="4" y="14">%s</text>`, html.EscapeString(label))
}

// entry is a name in a legend, in its colour.
type entry struct{ name, class string }

const legendLine = 18.0

func (e entry) width() float64 { return textWidth(e.name) + 26 }

// fold gives the lines of a legend. The first one is that of the y axis's label, on a narrow picture the line below it.
func (f frame) fold(entries []entry, label string) (lines [][]entry) {
	if len(entries) < 2 {
		return nil // nothing to distinguish
	}
	room := f.width - f.right - 8
	left := room
	if label != "" && !f.narrow {
		left -= textWidth(label) + 20
	}
	lines = append(lines, nil)
	for _, e := range entries {
		if left -= e.width(); left < 0 && (len(lines) > 1 || len(lines[0]) > 0) {
			lines, left = append(lines, nil), room-e.width()
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
	}
	return lines
}

// grow makes room at the top for a legend of several lines, and returns how much.
func (f *frame) grow(legend [][]entry) float64 {
	more := legendLine * float64(max(0, len(legend)-1))
	f.top += more
	return more
}

func (f frame) legend(b *strings.Builder, lines [][]entry) {
	y := 14.0
	if f.narrow {
		y = 32
	}
	for _, entries := range lines {
		x := f.width - f.right
		for _, e := range slices.Backward(entries) {
			x -= e.width()
			fmt.Fprintf(b, `<rect class="%s f" x="%s" y="%s" width="12" height="12" rx="2"/><text class="l" x="%s" y="%s">%s</text>`,
				e.class, xy(x), xy(y-10), xy(x+17), xy(y), html.EscapeString(e.name))
		}
		y += legendLine
	}
}

// textWidth is about how wide words are.
func textWidth(words string) float64 { return 6.6 * float64(len([]rune(words))) }
