package plot

import (
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Report is one page: what was proved, the figures, the tables, how it was measured.
type Report struct {
	Title   string
	When    time.Time // zero: not shown
	Verdict string    // one sentence
	Lead    string    // what happened, in a few sentences; may be empty
	Picture Figure    // stands above the facts, without a heading; may be nil
	OK      bool      // colours the verdict; the words must say it too
	Facts   []Fact    // the few numbers that matter, large
	Events  []Event   // numbered as in the charts
	Figures []Figure
	Tables  []Table
	Method  string // the command and the machine; plain text, lines kept
}

// Fact is one large number with its name.
type Fact struct{ Name, Value string }

// Table is a plain table. Numbers are right-aligned; the first column, and columns of words, are left-aligned.
type Table struct {
	Title  string
	Header []string
	Rows   [][]string
}

// sentence is how long a cell is that is no number with a unit.
const sentence = 24

// Classes are those of the columns: "p" of words.
func (t Table) Classes() []string {
	columns := len(t.Header)
	for _, row := range t.Rows {
		columns = max(columns, len(row))
	}
	classes := make([]string, columns)
	for i := range classes {
		long, seen, letters := false, false, true
		for _, row := range t.Rows {
			if i >= len(row) || row[i] == "" {
				continue
			}
			first, _ := utf8.DecodeRuneInString(row[i])
			long, seen, letters = long || utf8.RuneCountInString(row[i]) > sentence, true, letters && unicode.IsLetter(first)
		}
		if long || seen && letters {
			classes[i] = "p"
		}
	}
	return classes
}

// WriteHTML writes the page. The error is the writer's.
func (r Report) WriteHTML(w io.Writer) error {
	figures := make([]drawn, 0, len(r.Figures))
	for _, f := range r.Figures {
		figures = append(figures, draw(f))
	}
	var picture []drawn
	if r.Picture != nil {
		picture = append(picture, draw(r.Picture))
	}
	events := make([]string, len(r.Events))
	for i, e := range r.Events {
		events[i] = fmt.Sprintf("%s s: %s", number(e.X), e.Label)
	}
	when := ""
	if !r.When.IsZero() {
		when = r.When.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return page.Execute(w, map[string]any{
		"Report": r, "Picture": picture, "Figures": figures, "Events": events, "When": when,
	})
}

// drawn is a figure in both of its forms; the page shows the one that fits.
type drawn struct {
	Title, Note  string
	Wide, Narrow template.HTML
}

func draw(f Figure) drawn {
	var wide, narrow strings.Builder
	f.svg(&wide, false)
	f.svg(&narrow, true)
	title, note := f.heading()
	// The figures escape every word they are given; only they write this markup.
	return drawn{title, note, template.HTML(wide.String()), template.HTML(narrow.String())} //nolint:gosec // see above
}

var page = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{.Report.Title}}</title><style>
:root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1d2329;--dim:#66707a;--rule:#e1e4e8;--card:#fff;--ok:#117a43;--bad:#b3261e;
--c0:#1f6feb;--c1:#d9730d;--c2:#2a8f5b;--c3:#8a4fd0;--c4:#c2255c;--c5:#0b8a9e;--c6:#8a6d1a;--c7:#5c6773}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e4e8ec;--dim:#97a1ac;--rule:#2c333b;--card:#1a2027;--ok:#4cc38a;--bad:#ff7b72;
--c0:#6aa9ff;--c1:#f0a05a;--c2:#62c88f;--c3:#b692f0;--c4:#f078a0;--c5:#55c6d8;--c6:#d0b050;--c7:#a3adb8}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);margin:0 auto;max-width:980px;padding:28px 20px 60px}
h1{font-size:24px;margin:0}h2{font-size:17px;margin:30px 0 6px}.when,.note,figcaption{color:var(--dim);font-size:13px}
.verdict{font-size:18px;font-weight:600;margin:14px 0 18px;padding:10px 14px;border-left:5px solid var(--bad);background:var(--card)}
.verdict.ok{border-color:var(--ok)}.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:10px;margin-top:14px}
.fact{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:8px 14px}
.fact b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.fact span{color:var(--dim);font-size:13px}
svg{box-sizing:border-box;width:100%;height:auto;background:var(--card);border:1px solid var(--rule);border-radius:8px;font:12px system-ui,sans-serif}
svg text{fill:var(--fg)}svg .t,svg .l{fill:var(--dim)}svg .g{stroke:var(--rule)}svg .w{stroke:var(--fg);stroke-width:1.5}
svg polyline{fill:none;stroke-width:2}svg .e line{stroke:var(--dim);stroke-dasharray:4 3}svg .e circle{fill:var(--dim)}svg .e text{fill:var(--card);font-size:11px}
svg .v line{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:2 4}svg .v text{fill:var(--bad);font-size:11.5px;paint-order:stroke;stroke:var(--card);stroke-width:3px}.h{opacity:0}.h:hover{opacity:1}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
.s0.f,.s0.p{fill:var(--c0)}.s1.f,.s1.p{fill:var(--c1)}.s2.f,.s2.p{fill:var(--c2)}.s3.f,.s3.p{fill:var(--c3)}.s4.f,.s4.p{fill:var(--c4)}.s5.f,.s5.p{fill:var(--c5)}.s6.f,.s6.p{fill:var(--c6)}.s7.f,.s7.p{fill:var(--c7)}
.m{stroke:var(--dim)}.m.f,.m.p{fill:var(--dim)}svg polyline.m{stroke-width:2.5}svg .k{fill:var(--fg);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px}
svg .b rect{fill:var(--bg);stroke:var(--c0);stroke-width:1.5}svg .b.q rect{stroke:var(--dim);stroke-dasharray:4 3}svg .b .t{font-size:12px}svg .b .n{font-weight:600;font-size:13px}
svg .a{stroke:var(--c0);stroke-width:1.5;fill:none}svg .a.q{stroke:var(--dim);stroke-dasharray:4 3}
.f,.p{stroke:none}figure{margin:0}.narrow{display:none}ol{font-size:14px;padding-left:22px;columns:2;column-gap:44px;margin:8px 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:50%}
td,th{padding:4px 12px;border-bottom:1px solid var(--rule);text-align:right}td:first-child,th:first-child{text-align:left;padding-left:0}td.p,th.p{text-align:left}th{font-weight:400}thead th{color:var(--dim);font-weight:500}:focus-visible{outline:3px solid var(--c0);outline-offset:2px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 14px;overflow-x:auto;font-size:13px;white-space:pre-wrap;overflow-wrap:anywhere}
@media(max-width:640px){.wide{display:none}.narrow{display:block}body{padding:18px 12px 40px}ol{columns:1}
.facts{grid-template-columns:repeat(2,minmax(0,1fr))}.fact{padding:6px 10px;overflow-wrap:anywhere}.fact b{font-size:18px}h1{font-size:21px}}
</style></head><body>
<main><h1>{{.Report.Title}}</h1>{{if .When}}<div class="when">{{.When}}</div>{{end}}
{{if .Report.Verdict}}<p class="verdict{{if .Report.OK}} ok{{end}}">{{.Report.Verdict}}</p>{{end}}
{{if .Report.Lead}}<p>{{.Report.Lead}}</p>{{end}}
{{range .Picture}}<figure><div class="wide">{{.Wide}}</div><div class="narrow">{{.Narrow}}</div></figure>{{end}}
{{if .Report.Facts}}<div class="facts">{{range .Report.Facts}}<div class="fact"><b>{{.Value}}</b><span>{{.Name}}</span></div>{{end}}</div>{{end}}
{{if .Events}}<h2>Events</h2><ol>{{range .Events}}<li>{{.}}</li>{{end}}</ol>{{end}}
{{range .Figures}}<h2>{{.Title}}</h2><figure><div class="wide">{{.Wide}}</div><div class="narrow">{{.Narrow}}</div>{{if .Note}}<figcaption>{{.Note}}</figcaption>{{end}}</figure>
{{end}}
{{range $n, $t := .Report.Tables}}{{$class := .Classes}}<h2 id="t{{$n}}">{{.Title}}</h2><div class="scroll" role="region" aria-labelledby="t{{$n}}" tabindex="0"><table aria-labelledby="t{{$n}}"><thead><tr>{{range $i, $v := .Header}}<th scope="col"{{with index $class $i}} class="{{.}}"{{end}}>{{$v}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr>{{range $i, $v := .}}{{if $i}}<td{{with index $class $i}} class="{{.}}"{{end}}>{{$v}}</td>{{else}}<th scope="row"{{with index $class $i}} class="{{.}}"{{end}}>{{$v}}</th>{{end}}{{end}}</tr>
{{end}}</tbody></table></div>{{end}}
{{if .Report.Method}}<h2>How it was measured</h2><pre>{{.Report.Method}}</pre>{{end}}
</main></body></html>
`))
