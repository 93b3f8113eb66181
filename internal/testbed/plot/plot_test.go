package plot_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/plot"
	"github.com/weir-lb/weir/internal/testbed/testbedtest"
)

func sample() plot.Report {
	return plot.Report{
		Title: "weir <demo>", When: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC),
		OK: true, Verdict: "Sessions lost: 0.",
		Facts: []plot.Fact{{"requests", "1,200"}, {"p99", "2.1 ms"}},
		Lead:  "What <happened>.",
		Picture: plot.Topology{
			Title: "who & whom", Clients: []plot.Box{{Name: "a<b"}, {Name: "c", Muted: true}}, Via: plot.Box{Name: "via", Detail: "d"},
			Nodes: []plot.Box{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}, Among: "records for <others>",
		},
		Events: []plot.Event{{2, "NAT & cleared", "clear&"}},
		Figures: []plot.Figure{
			plot.Chart{
				Title: "Rate", YLabel: "requests/s", Events: []plot.Event{{2, "NAT & cleared", "clear&"}}, Marks: []plot.Mark{{X: 1, Y: 3, Text: "+<5>"}}, Levels: []plot.Level{{12000, "what <it> holds"}, {11990, "nearly that"}},
				Series: []plot.Series{
					{Name: "a<b", X: []float64{0, 1, 2, 3}, Y: []float64{10, 12000, math.NaN(), 11000}},
					{Name: "c", X: []float64{0, 1}, Y: []float64{1, 2}, Muted: true, Steps: true},
				},
			},
			plot.Bars{
				Title: "Throughput", Unit: "Gb/s", Names: []string{"IPv4", "IPv6"},
				Groups: []plot.Group{
					{Name: "routing", Values: []float64{14.2, 13}, Spread: [][2]float64{{13, 15}, {12, 14}}},
					{Name: "kernel DNAT", Values: []float64{12, math.NaN()}},
				},
			},
			plot.Chart{Title: "nothing measured"},
			plot.Chart{Title: "latency", Log: true, Series: []plot.Series{{Name: "p99", X: []float64{0, 1, 2}, Y: []float64{0, 2, 900}}}},
			plot.Chart{Title: "nothing measured", Log: true},
		},
		Tables: []plot.Table{{Title: "Nodes", Header: []string{"node", "sessions"}, Rows: [][]string{{"1", "67"}}}},
		Method: "weir demo --seed 1",
	}
}

func render(t *testing.T, r plot.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportGolden(t *testing.T) {
	testbedtest.Golden(t, "report.html", render(t, sample()))
}

// Words from a configuration end up in titles: none may become markup.
func TestReportEscapesWords(t *testing.T) {
	got := render(t, sample())
	for _, bad := range []string{"<demo>", "a<b", "NAT & cleared", "clear&<", "<happened>", "<others>", "+<5>", "NaN", "Inf"} {
		if strings.Contains(got, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

func TestPicturesAreWellFormedXML(t *testing.T) {
	pictures := strings.Split(render(t, sample()), "<svg")[1:]
	if len(pictures) != 12 {
		t.Fatalf("%d pictures, want 6 in two forms", len(pictures))
	}
	for _, p := range pictures {
		body, _, found := strings.Cut(p, "</svg>")
		if !found {
			t.Fatal("a picture does not end")
		}
		d := xml.NewDecoder(strings.NewReader("<svg" + body + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, body)
			}
		}
	}
}

// A mark above all lines stays in the picture, below the numbers of the events.
func TestMarksStayInThePicture(t *testing.T) {
	page := render(t, plot.Report{Title: "lost", Figures: []plot.Figure{plot.Chart{
		Title: "lost", Series: []plot.Series{{Name: "a", X: []float64{0, 10}, Y: []float64{0, 139}}}, Marks: []plot.Mark{{X: 9, Y: 200, Text: "+50"}},
	}}})
	found := regexp.MustCompile(`class="k" x="[0-9.]+" y="([0-9.]+)"`).FindAllStringSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("%d marks in the wide and the narrow picture", len(found))
	}
	for _, mark := range found {
		if y, err := strconv.ParseFloat(mark[1], 64); err != nil || y < 45 {
			t.Errorf("the mark is at %s, above the picture", mark[1])
		}
	}
}

// A legend that is wider than the picture takes several lines, all of them in the picture and none over another or over the plot.
func TestLongLegendsTakeSeveralLines(t *testing.T) {
	names := []string{"DTLS sessions lost", "DTLS requests lost", "TURN allocations that carried nothing", "TURN datagrams lost", "TCP flows lost", "UDP flows lost", "repeated"}
	chart := plot.Chart{Title: "c", YLabel: "of all that were there at the start"}
	for _, name := range names {
		chart.Series = append(chart.Series, plot.Series{Name: name, X: []float64{0, 1}, Y: []float64{0, 1}})
	}
	bars := plot.Bars{Title: "b", Names: names, Groups: []plot.Group{{Name: "g", Values: []float64{1, 0, 0, 0, 0, 0, 0}}}}
	page := render(t, plot.Report{Figures: []plot.Figure{chart, bars}})
	found := regexp.MustCompile(`<text class="l" x="(-?[0-9.]+)" y="([0-9.]+)">([^<]*)</text>`).FindAllStringSubmatch(page, -1)
	lines := map[string]bool{}
	for _, m := range found {
		if x, err := strconv.ParseFloat(m[1], 64); err != nil || x < 4 {
			t.Errorf("%q begins at %s", m[3], m[1])
		}
		lines[m[2]] = true
	}
	if len(found) < 4*len(names) || len(lines) < 4 {
		t.Errorf("%d words in %d lines", len(found), len(lines))
	}
}

// A group of bars that are all 0 says so in one line.
func TestBarsOfZeroTakeOneLine(t *testing.T) {
	page := render(t, plot.Report{Figures: []plot.Figure{plot.Bars{
		Title: "lost", Names: []string{"a", "b", "c"}, Groups: []plot.Group{{Name: "none", Values: []float64{0, 0, 0}}, {Name: "some", Values: []float64{0, 2, 0}}, {Name: "unknown", Values: []float64{0, 0, math.NaN()}}},
	}}})
	if all, bars := strings.Count(page, ">all 0<"), strings.Count(page, "<g><title>"); all != 2 || bars != 2*5 {
		t.Errorf("%d times all 0, %d bars in two pictures", all, bars)
	}
}

// What was measured before an event at 0 stays in the picture, and two events that follow at once do not hide each other.
func TestTimeBeforeTheEvent(t *testing.T) {
	page := render(t, plot.Report{Figures: []plot.Figure{plot.Chart{
		Series: []plot.Series{{Name: "a", X: []float64{-1, 0, 20}, Y: []float64{1, 1, 1}}}, Events: []plot.Event{{X: 0, Label: "first"}, {X: 0.1, Label: "second"}},
	}}})
	for _, m := range regexp.MustCompile(`points="([0-9.-]+),`).FindAllStringSubmatch(page, -1) {
		if x, err := strconv.ParseFloat(m[1], 64); err != nil || x < 44 {
			t.Errorf("the line begins at %s, left of the axis", m[1])
		}
	}
	heights := map[string]bool{}
	for _, m := range regexp.MustCompile(`cy="([0-9.]+)" r="8"`).FindAllStringSubmatch(page, -1) {
		heights[m[1]] = true
	}
	if len(heights) != 4 {
		t.Errorf("numbers of the two events at the heights %v in two pictures", heights)
	}
}

// Sentences begin at the left of their column, numbers end at its right.
func TestProseIsLeftAligned(t *testing.T) {
	page := render(t, plot.Report{Tables: []plot.Table{{
		Header: []string{"what", "count", "words"},
		Rows:   [][]string{{"a", "1", "short"}, {"b", "2", "a sentence of several words", "a cell without a header"}},
	}}})
	for _, want := range []string{`<th scope="col">count</th><th scope="col" class="p">words</th>`, `<td>1</td><td class="p">short</td>`, `<td>2</td><td class="p">a sentence`, `<td class="p">a cell without`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}

// Words in the place of the axis's numbers, of which the last one does not leave the picture.
func TestTicksAreWords(t *testing.T) {
	page := render(t, plot.Report{Figures: []plot.Figure{plot.Chart{
		Series: []plot.Series{{X: []float64{0, 5}, Y: []float64{0, 1}}}, Ticks: []plot.Tick{{X: 1, Text: "p90"}, {X: 5, Text: "the maximum"}},
	}}})
	for i, width := range []float64{920, 360} {
		found := regexp.MustCompile(`class="t" x="([0-9.]+)" y="[0-9.]+" text-anchor="middle">(p90|the maximum)<`).FindAllStringSubmatch(page, -1)
		if len(found) != 4 {
			t.Fatalf("%v", found)
		}
		if x, err := strconv.ParseFloat(found[2*i+1][1], 64); err != nil || x > width-30 {
			t.Errorf("the last word's middle is at %s of %g", found[2*i+1][1], width)
		}
	}
	if strings.Contains(page, ">2.5<") {
		t.Error("numbers next to the words")
	}
}
