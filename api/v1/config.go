package v1

import (
	"encoding/json"
	"time"
)

// Configuration is the answer of GET /config and GET /config/PATH: what is in force now. Its key value has secrets in it, such as hash_key.
type Configuration struct {
	// Generation counts the configurations of this process from 1, as BalancerStatus.ConfigGeneration. Overrides, such as drain, do not change it.
	Generation uint64 `json:"generation"`
	ETag       string `json:"etag"`                 // names this configuration of this process: for If-Match, and if of a ConfigRequest
	Path       string `json:"path"`                 // of the value, such as /services/echo/backends/a; / is all
	File       string `json:"file,omitempty"`       // its file; absent: it has none
	Unsaved    bool   `json:"unsaved"`              // it differs from the file: a restart would lose the difference
	Value      any    `json:"value"`                // the object, with the keys of the file
	ReadOnly   string `json:"read_only,omitempty"`  // why it cannot be changed here; absent: it can
	WriteBack  bool   `json:"write_back,omitempty"` // each change is written to the file
}

// ConfigRequest is the body of POST /config: changes that are made as a whole or not at all.
type ConfigRequest struct {
	Changes []ConfigChange `json:"changes"`           // in this order
	If      string         `json:"if,omitempty"`      // etag or generation that must be in force, else the answer is 412; absent: any
	DryRun  bool           `json:"dry_run,omitempty"` // answer what would change, and change nothing
	Write   bool           `json:"write,omitempty"`   // write the file too, with its comments
}

// ConfigChange is one change of a configuration. Making it again has no further effect.
type ConfigChange struct {
	// Op is set (the object is exactly this), merge (these keys of it; null removes one; an absent object is made), add (as set, refused if
	// there is another object) or remove (nothing happens if it is absent).
	Op    string          `json:"op"`
	Path  string          `json:"path"`            // /services/NAME, /services/NAME/backends/NAME, /services/NAME/backends/NAME/weight, ...
	Value json.RawMessage `json:"value,omitempty"` // with the keys of the file; absent with remove
}

// ConfigAnswer says what a ConfigRequest has changed, or would change.
type ConfigAnswer struct {
	Generation  uint64             `json:"generation"`            // number of the configuration in force after the request
	ETag        string             `json:"etag"`                  // of that configuration
	Changed     bool               `json:"changed"`               // false: all of it was so before
	DryRun      bool               `json:"dry_run,omitempty"`     // nothing was changed
	Written     bool               `json:"written,omitempty"`     // the file has the change too
	WriteError  string             `json:"write_error,omitempty"` // the change is in force, and the file could not be written; absent: it was, or was not to be
	Unsaved     bool               `json:"unsaved"`               // what is in force differs from the file
	File        string             `json:"file,omitempty"`        // its file; absent: it has none
	Differences []ConfigDifference `json:"differences"`           // at most MaxConfigDifferences
	More        int                `json:"more,omitempty"`        // differences beyond these; absent: none
	// Services are those that the change compiles to something else, as GET /status would show them. Absent: no dry run.
	Services []ServiceStatus `json:"services,omitempty"`
}

// MaxConfigDifferences is the maximum number of differences in one answer or event.
const MaxConfigDifferences = 1000

// ConfigDifference is one value that two configurations do not share. Secrets are replaced by "(secret)".
type ConfigDifference struct {
	Path string `json:"path"`          // of the object or key
	Old  any    `json:"old,omitempty"` // absent: it is new
	New  any    `json:"new,omitempty"` // absent: it is gone
}

// ConfigDiff is the answer of GET /config-diff: how what is in force differs from the file.
type ConfigDiff struct {
	Generation  uint64             `json:"generation"`     // number of the configuration in force
	File        string             `json:"file,omitempty"` // absent: there is none
	Differences []ConfigDifference `json:"differences"`    // old: in the file, new: in force; at most MaxConfigDifferences
	More        int                `json:"more,omitempty"` // differences beyond these; absent: none
}

// ConfigEvent is one line of POST /config-watch: a configuration that came into force.
type ConfigEvent struct {
	Generation  uint64             `json:"generation"`            // number of the configuration; each one once, in order
	ETag        string             `json:"etag"`                  // of it
	At          time.Time          `json:"at"`                    // when it came into force
	By          string             `json:"by"`                    // who: "file" and its name, or the client, such as "uid 0, pid 4711"
	Action      string             `json:"action"`                // start, file, source, change or revert
	Differences []ConfigDifference `json:"differences,omitempty"` // from the one before, at most MaxConfigDifferences; absent: not known, as at the start
	More        int                `json:"more,omitempty"`        // differences beyond these; absent: none
	Dropped     []string           `json:"dropped,omitempty"`     // objects whose run-time change the file has ended; absent: none
	Missed      uint64             `json:"missed,omitempty"`      // generations before this one that are forgotten, or that the client was too slow for; absent: none
}
