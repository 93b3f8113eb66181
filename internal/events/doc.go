// Package events gives log records stable names, and keeps the newest ones for the admin API.
//
// The name of a record is its message in short: words without meaning are left out, and what follows a semicolon. So
// "the serving process ended; another one starts with its sockets" is serving_process_ended. A record whose message is made at run time
// names itself by the attribute "event". docs/events.md lists all names, and a test compares it with every call of a logger, so no name
// changes unnoticed.
//
//	handler, ring := events.Keep(slog.NewJSONHandler(os.Stderr, nil))
//	log := slog.New(handler)
//	list := ring.List(0)
//
// Bounds: maxEvents records of at most maxAttributes attributes, each at most maxText bytes.
package events
