package events

import "strings"

// maxWords is how many words of a message its name has.
const maxWords = 6

// fillers are words that a name does without.
var fillers = map[string]bool{
	"a": true, "an": true, "the": true, "is": true, "are": true, "was": true, "were": true, "be": true, "it": true, "its": true, "of": true,
	"to": true, "that": true, "which": true, "has": true, "have": true, "and": true, "their": true,
}

// Name is the stable name of a record with this message.
func Name(message string) string {
	message, _, _ = strings.Cut(message, ";")
	words := strings.FieldsFunc(strings.ToLower(message), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	kept := make([]string, 0, maxWords)
	for _, word := range words {
		if !fillers[word] && len(kept) < maxWords {
			kept = append(kept, word)
		}
	}
	return strings.Join(kept, "_")
}
