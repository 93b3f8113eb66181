package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// queueTraceLine is one line of POST /trace: a packet, or a sign that the trace continues, as the first line is.
type queueTraceLine struct {
	Packet *tracedPacket `json:"packet,omitempty"`
	Head   []byte        `json:"head,omitempty"` // of the packet, from its IP header on
	Missed uint64        `json:"missed"`         // packets that came too fast, so far
}

// traceBeat is the interval at which a trace without packets writes a line. The write also detects that the reader is gone.
const traceBeat = 2 * time.Second

// busyTrace is an error of nfqueue that admin answers with status 409.
type busyTrace struct{ error }

func (busyTrace) Is(target error) bool { return target == admin.ErrBusy }

// traceQueues serves POST /trace.
func traceQueues(datapath *nfqueue.Datapath) func(context.Context, url.Values, func(any, bool) error) error {
	return func(ctx context.Context, query url.Values, write func(any, bool) error) error {
		filter, err := traceFilterOf(query)
		if err != nil {
			return err
		}
		trace, err := datapath.Trace(filter)
		if errors.Is(err, nfqueue.ErrTraced) {
			return busyTrace{err}
		}
		if err != nil {
			return err
		}
		defer trace.Close()
		beat := time.NewTicker(traceBeat)
		defer beat.Stop()
		interfaces := map[uint32]string{}
		err = write(queueTraceLine{}, true)
		for err == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-beat.C:
				err = write(queueTraceLine{Missed: trace.Missed()}, true)
			case e := <-trace.Events():
				line := describeQueued(&e, interfaces)
				err = write(queueTraceLine{Packet: &line, Head: e.Head[:e.Captured], Missed: trace.Missed()}, len(trace.Events()) == 0)
			}
		}
		return err
	}
}

func traceQuery(filter ebpf.TraceFilter) url.Values {
	query := url.Values{}
	if filter.Service != "" {
		query.Set("service", filter.Service)
	}
	if filter.Prefix.IsValid() && filter.Both {
		query.Set("host", filter.Prefix.String())
	} else if filter.Prefix.IsValid() {
		query.Set("src", filter.Prefix.String())
	}
	for _, reason := range filter.Reasons {
		query.Add("reason", reason.String())
	}
	return query
}

// traceFilterOf reads the query that traceQuery, or another client, wrote.
func traceFilterOf(query url.Values) (nfqueue.TraceFilter, error) {
	flags := traceFlags{service: query.Get("service"), source: query.Get("src"), host: query.Get("host"), reasons: query["reason"]}
	filter, err := flags.filter()
	return nfqueue.TraceFilter(filter), err
}

func describeQueued(e *nfqueue.Traced, interfaces map[uint32]string) tracedPacket {
	name, known := interfaces[e.Interface]
	if !known {
		name = "-"
		if e.Interface != 0 {
			name = fmt.Sprintf("interface %d", e.Interface)
			if i, err := net.InterfaceByIndex(int(e.Interface)); err == nil {
				name = i.Name
			}
		}
		interfaces[e.Interface] = name
	}
	line := tracedPacket{
		Time: e.Time, Interface: name, Length: e.Length, Action: e.Reason.Action().String(), Reason: e.Reason.String(),
		Service: e.Service, Backend: e.Backend, New: e.New, Mark: e.Mark, Queue: &e.Queue,
	}
	if e.Flow.Proto != 0 {
		line.Protocol, line.Source, line.Destination = lb.Protocol(e.Flow.Proto).String(), e.Flow.Source().String(), e.Flow.Destination().String()
	}
	return line
}

// servedByQueues queries which data path serves. An error means that nobody answers.
func servedByQueues(cmd *cobra.Command, flags *traceFlags) (bool, *admin.Client, error) {
	if cmd.Flags().Changed("pin-path") {
		return false, nil, nil
	}
	client, err := flags.client()
	if err != nil {
		return false, nil, err
	}
	var status lbStatus
	if err := client.Get(cmd.Context(), "/status", nil, &status); err != nil {
		return false, nil, err
	}
	if status.Datapath == "udp" {
		return false, nil, errors.New("the data path udp has no trace: weir lb flows lists its flows, weir lb show who gets them")
	}
	if status.Fast != nil && status.Fast.InUse {
		fmt.Fprintln(cmd.ErrOrStderr(), "the fast path decides most packets before the queue: this shows those that the queue gets; --fast off shows all")
	}
	return status.Datapath == nfqueue.Caps().Name, client, nil
}

// traceQueue is ebpf.Trace for queues.
func traceQueue(ctx context.Context, client *admin.Client, filter ebpf.TraceFilter, each func(line tracedPacket, head []byte) bool) (missed uint64, err error) {
	err = client.Stream(ctx, "/trace", traceQuery(filter), func(text []byte) (bool, error) {
		var line queueTraceLine
		if err := json.Unmarshal(text, &line); err != nil {
			return false, fmt.Errorf("a line of the trace: %w", err)
		}
		missed = line.Missed
		return line.Packet == nil || each(*line.Packet, line.Head), nil
	})
	return missed, err
}
