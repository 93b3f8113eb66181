package browse

import (
	"errors"
	"os"
	"os/exec"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// visible are the links that the filter lets through.
func (m *model) visible() []client.Link {
	if m.filter == "" {
		return m.links
	}
	var out []client.Link
	for _, l := range m.links {
		if strings.Contains(strings.ToLower(l.String()), strings.ToLower(m.filter)) {
			out = append(out, l)
		}
	}
	return out
}

// target is the chosen resource.
func (m *model) target() string {
	if links := m.visible(); m.cursor < len(links) {
		return links[m.cursor].Target
	}
	return ""
}

func (m *model) key(e tea.KeyMsg) tea.Cmd {
	if e.String() == "ctrl+c" {
		return tea.Quit
	}
	switch m.mode {
	case filtering:
		m.typeFilter(e)
		return nil
	case editing:
		return m.typeText(e)
	case deleting:
		m.mode = choosing
		if e.String() == "y" {
			return m.request(message.DELETE, m.target(), nil)
		}
		return nil
	case helping:
		m.mode = choosing
		return nil
	}
	return m.choose(e)
}

func (m *model) choose(e tea.KeyMsg) tea.Cmd {
	target := m.target()
	switch e.String() {
	case "q":
		return tea.Quit
	case "up", "k":
		m.cursor = max(0, m.cursor-1)
	case "down", "j":
		m.cursor = max(0, min(m.cursor+1, len(m.visible())-1))
	case "pgup", "pgdown":
		var cmd tea.Cmd
		m.content, cmd = m.content.Update(e)
		return cmd
	case "r":
		return m.discover()
	case "x":
		m.hex = !m.hex
		m.layout()
	case "/":
		m.mode, m.filter, m.cursor = filtering, "", 0
	case "h", "?":
		m.mode = helping
	}
	if target == "" {
		return nil
	}
	switch e.String() {
	case "enter":
		return m.request(message.GET, target, nil)
	case "o":
		return m.observe(target)
	case "e":
		m.mode = editing
		m.area.SetValue(string(m.raw))
		m.layout()
		return m.area.Focus()
	case "E":
		return m.editor(target)
	case "d":
		m.mode = deleting
	}
	return nil
}

func (m *model) typeFilter(e tea.KeyMsg) {
	switch e.Type {
	case tea.KeyEnter:
		m.mode = choosing
	case tea.KeyEsc:
		m.mode, m.filter = choosing, ""
	case tea.KeyBackspace:
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case tea.KeyRunes, tea.KeySpace:
		m.filter += string(e.Runes)
	}
	m.cursor = 0
}

func (m *model) typeText(e tea.KeyMsg) tea.Cmd {
	method := message.Empty
	switch e.String() {
	case "ctrl+s":
		method = message.PUT
	case "ctrl+p":
		method = message.POST
	case "esc":
		m.mode = choosing
		return nil
	default:
		var cmd tea.Cmd
		m.area, cmd = m.area.Update(e)
		return cmd
	}
	m.mode = choosing
	return m.request(method, m.target(), []byte(m.area.Value()))
}

// editor opens $EDITOR with what the content holds, and puts what it saves.
func (m *model) editor(target string) tea.Cmd {
	words := strings.Fields(os.Getenv("EDITOR"))
	if len(words) == 0 {
		return func() tea.Msg { return edited{err: errors.New("EDITOR is not set; press e for the text area")} }
	}
	file, err := os.CreateTemp("", "weir-browse-")
	if err == nil {
		_, err = file.Write(m.raw)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return func() tea.Msg { return edited{err: err} }
	}
	path := file.Name()
	return tea.ExecProcess(exec.CommandContext(m.ctx, words[0], append(words[1:], path)...), func(err error) tea.Msg { //nolint:gosec // the user's editor
		text, readErr := os.ReadFile(path)
		return edited{target, text, errors.Join(err, readErr, os.Remove(path))}
	})
}
