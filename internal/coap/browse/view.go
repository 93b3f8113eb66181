package browse

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/charmbracelet/bubbles/viewport"
	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"github.com/weir-lb/weir/internal/coap/client"
)

const (
	logLines = 4
	narrow   = 60 // columns below which the list is above the content
)

const help = `enter   GET
o       observe, or end it
e       edit; Ctrl-S puts, Ctrl-P posts, Esc leaves
E       edit in $EDITOR and put
d       delete (asks)
x       payload in hex
r       discover again
/       filter; Esc clears it
PgUp PgDn  scroll
q       quit`

// sizes of the list and the content, without their borders.
func (m *model) sizes() (listWidth, listHeight, width, height int) {
	room := max(4, m.height-logLines-2)
	if m.width < narrow {
		listHeight = max(1, room/3-2)
		return max(1, m.width-2), listHeight, max(1, m.width-2), max(1, room-listHeight-4)
	}
	listWidth = min(40, m.width/3)
	return listWidth, max(1, room-2), max(1, m.width-listWidth-4), max(1, room-2)
}

func (m *model) layout() {
	_, _, width, height := m.sizes()
	body := m.body
	if m.hex && m.raw != nil {
		body = hex.Dump(m.raw)
	}
	m.content = viewport.New(width, max(1, height-1))
	m.content.SetContent(ansi.Hardwrap(body, width, true))
	m.area.SetWidth(width)
	m.area.SetHeight(max(1, height-1))
}

var (
	border = lipgloss.NewStyle().Border(lipgloss.NormalBorder()).BorderForeground(lipgloss.AdaptiveColor{Light: "245", Dark: "240"})
	bold   = lipgloss.NewStyle().Bold(true)
	chosen = lipgloss.NewStyle().Reverse(true)
	faint  = lipgloss.NewStyle().Faint(true)
)

// View draws the screen.
func (m *model) View() string {
	listWidth, listHeight, width, height := m.sizes()
	left := border.Width(listWidth).Height(listHeight).Render(m.list(listWidth, listHeight))
	inner := bold.Render(ansi.Truncate(m.title, width, "…")) + "\n" + m.content.View()
	switch m.mode {
	case editing:
		inner = bold.Render(ansi.Truncate("edit "+client.Printable(m.target()), width, "…")) + "\n" + m.area.View()
	case helping:
		inner = help
	}
	right := border.Width(width).Height(height).MaxHeight(height + 2).Render(inner)
	panes := lipgloss.JoinHorizontal(lipgloss.Top, left, right)
	if m.width < narrow {
		panes = lipgloss.JoinVertical(lipgloss.Left, left, right)
	}
	lines := append([]string{bold.Render(ansi.Truncate(client.Printable(m.uri), m.width, "…")), panes}, m.logView()...)
	return strings.Join(append(lines, ansi.Truncate(m.status(), m.width, "…")), "\n")
}

func (m *model) list(width, height int) string {
	links := m.visible()
	first := max(0, min(m.cursor-height/2, len(links)-height))
	var lines []string
	for i := first; i < min(len(links), first+height); i++ {
		mark, dot := "  ", ""
		if i == m.cursor {
			mark = "> "
		}
		if _, is := m.observed[links[i].Target]; is {
			dot = " *"
		} else if links[i].Has("obs") {
			dot = " o"
		}
		line := ansi.Truncate(mark+client.Printable(links[i].Target)+dot, width, "…")
		if i == m.cursor {
			line = chosen.Render(line)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (m *model) logView() []string {
	lines := make([]string, logLines)
	for i, line := range m.log[max(0, len(m.log)-logLines):] {
		lines[i] = faint.Render(ansi.Truncate(line, m.width, "…"))
	}
	return lines
}

func (m *model) status() string {
	switch m.mode {
	case filtering:
		return "filter: " + m.filter
	case deleting:
		return fmt.Sprintf("delete %s? y/n", client.Printable(m.target()))
	case editing:
		return "Ctrl-S put  Ctrl-P post  Esc leave"
	case helping:
		return "any key: back"
	}
	return "enter GET  o observe  e edit  d delete  r refresh  / filter  ? help  q quit"
}
