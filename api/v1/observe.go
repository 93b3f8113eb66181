package v1

import "time"

// EventList is the answer of GET /events: the newest log records of the process.
type EventList struct {
	Events []Event `json:"events"` // the oldest first
	// Forgotten counts the records since the start that the process no longer has, because newer ones took their places.
	Forgotten uint64 `json:"forgotten"`
}

// Event is one log record. docs/events.md lists all names.
type Event struct {
	Number     uint64            `json:"number"`               // counts from 1 at the start of the process
	Time       time.Time         `json:"time"`                 // when it was logged
	Level      string            `json:"level"`                // DEBUG, INFO, WARN or ERROR
	Name       string            `json:"event"`                // stable name, such as operator_action
	Message    string            `json:"message"`              // for people
	Attributes map[string]string `json:"attributes,omitempty"` // as logged, long ones cut; absent: none
}

// History is the answer of GET /history: the last hour of a process.
type History struct {
	At    time.Time `json:"at"`     // of the newest point
	Step  float64   `json:"step_s"` // seconds between two points
	Slots int       `json:"slots"`  // points of a full history
	Plots []Plot    `json:"plots"`  // in the order in which a page shows them
}

// Plot is a group of lines that have one unit.
type Plot struct {
	Title string `json:"title"`          // for people
	Unit  string `json:"unit,omitempty"` // bytes, seconds, percent, or absent: a number
	Rate  bool   `json:"rate,omitempty"` // the values are rates, per second
	Lines []Line `json:"lines"`          // ordered by name, the largest ones if there are too many
}

// Line is one line of a plot. All lines of a history end at History.At.
type Line struct {
	Name   string     `json:"name"`   // what is drawn
	Values []*float64 `json:"values"` // the oldest first; null: nothing is known of that time
}
