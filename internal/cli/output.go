package cli

import (
	"encoding/json"
	"fmt"
	"io"
)

// PrintJSON prints a value as indented JSON.
func PrintJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// PrintLine prints a value as one line of JSON.
func PrintLine(w io.Writer, value any) error {
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}
