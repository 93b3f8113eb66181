package node

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// ExecutionSize is the length of a record of Config.Executions in bytes.
const ExecutionSize = 16

// executionName is the path of the resource whose requests are recorded.
const executionName = "/executions"

// serialLength is how many bytes of a request say which one it is: number of the client and serial number, big endian.
const serialLength = 8

// openExecutions opens the file of Config.Executions; nil without one.
func (c *Config) openExecutions() (*os.File, error) {
	if c.Executions == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	file, err := os.OpenFile(c.Executions, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record of executions: %w", err)
	}
	return file, nil
}

// serveExecution executes a request: it appends a record of it to the file, in one write. The answer holds what says which request it was,
// so that a client can detect an answer to another one. The request is not repeatable: a server that executes it twice shows in the file.
func (l *listener) serveExecution(r *resource.Request) {
	if len(r.Body) < serialLength || !r.NoQuery() {
		if len(r.Body) < serialLength {
			r.Error(message.BadRequest, "the payload begins with 8 bytes: number of the client and serial number")
		}
		return
	}
	var record [ExecutionSize]byte
	copy(record[:], r.Body[:serialLength])
	binary.BigEndian.PutUint64(record[serialLength:], uint64(os.Getpid()))
	if _, err := l.executions.Write(record[:]); err != nil {
		r.Error(message.InternalServerError, "the execution cannot be recorded")
		return
	}
	r.Answer(message.Changed, message.OctetStream, record[:serialLength])
}
