package tree

import (
	"regexp"
	"strconv"
	"strings"
)

var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// NamePath returns the path by names of a path by numbers, as of config.Error: services[0].backends[1].weight is
// /services/echo/backends/a/weight. An item without a name keeps its number.
func NamePath(s Shape, root any, path string) string {
	var names []string
	value := root
	for _, part := range step.FindAllString(path, -1) {
		digits, isIndex := strings.CutPrefix(part, "[")
		if !isIndex {
			names = append(names, part)
			value, s, _ = s.child(value, part)
			continue
		}
		i, _ := strconv.Atoi(strings.TrimSuffix(digits, "]"))
		list, _ := value.([]any)
		name, ok := "", false
		if value = nil; i < len(list) {
			value = list[i]
			name, ok = s.NameOf(value)
		}
		if !ok || !s.Named() {
			name = strconv.Itoa(i)
		}
		names, s = append(names, name), s.Item()
	}
	return Join(names...)
}
