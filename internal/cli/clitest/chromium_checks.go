package clitest

import "strings"

// paleTexts lists visible texts whose contrast with what lies behind them is below 4.5 (WCAG 2.2, 1.4.3).
const paleTexts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const paint = (...colours) => { canvas.clearRect(0, 0, 1, 1); for (const c of colours) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); } return canvas.getImageData(0, 0, 1, 1).data; };
	const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * x + .7152 * y + .0722 * z; };
	const pale = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walker.nextNode());) {
		const e = n.parentElement;
		if (!n.data.trim() || !e.checkVisibility() || e.closest(".unseen, .skip, script, option")) continue;
		const behind = [];
		for (let up = e; up; up = up.parentElement) behind.unshift(getComputedStyle(up).backgroundColor);
		const svg = e.namespaceURI.endsWith("svg"), ink = svg ? getComputedStyle(e).fill : getComputedStyle(e).color;
		const [a, b] = [light(paint(...behind)), light(paint(...behind, ink))].sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) pale.push(n.data.trim().slice(0, 40) + " " + ((a + .05) / (b + .05)).toFixed(2));
	}
	return pale;
})()`

// PaleTexts lists visible texts whose contrast is too low.
func (b *Page) PaleTexts() (pale []string) {
	b.t.Helper()
	b.Evaluate(paleTexts, &pale)
	return pale
}

// CheckNames asks the browser's accessibility tree, as a screen reader does: what a reader reaches has a name, and there are at least so
// many elements of each role.
func (b *Page) CheckNames(roles map[string]int) {
	b.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.Call("Accessibility.getFullAXTree", nil, &tree)
	count := map[string]int{}
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if n.Ignored {
			continue
		}
		count[role]++
		switch role {
		case "button", "link", "searchbox", "combobox", "image", "img", "table", "region", "heading", "rowheader", "columnheader", "figure":
			if strings.TrimSpace(name) == "" {
				b.t.Errorf("a %s has no name", role)
			}
		}
	}
	for role, least := range roles {
		if count[role] < least {
			b.t.Errorf("%d of role %s, want %d at least; there are %v", count[role], role, least, count)
		}
	}
}
