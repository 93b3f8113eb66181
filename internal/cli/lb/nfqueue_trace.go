package lb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/steering/lb"
)

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
		err = write(v1.TraceLine{}, true)
		for err == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-beat.C:
				err = write(v1.TraceLine{Missed: trace.Missed()}, true)
			case e := <-trace.Events():
				line := describeQueued(&e, interfaces)
				err = write(v1.TraceLine{Packet: &line, Head: e.Head[:e.Captured], Missed: trace.Missed()}, len(trace.Events()) == 0)
			}
		}
		return err
	}
}

func traceQuery(filter ebpf.TraceFilter) client.TraceQuery {
	query := client.TraceQuery{Service: filter.Service}
	if filter.Prefix.IsValid() && filter.Both {
		query.Host = filter.Prefix.String()
	} else if filter.Prefix.IsValid() {
		query.Source = filter.Prefix.String()
	}
	for _, reason := range filter.Reasons {
		query.Reasons = append(query.Reasons, reason.String())
	}
	return query
}

// traceFilterOf reads the query of a client.TraceQuery.
func traceFilterOf(query url.Values) (nfqueue.TraceFilter, error) {
	flags := traceFlags{service: query.Get("service"), source: query.Get("src"), host: query.Get("host"), reasons: query["reason"]}
	filter, err := flags.filter()
	return nfqueue.TraceFilter(filter), err
}

func describeQueued(e *nfqueue.Traced, interfaces map[uint32]string) v1.TracedPacket {
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
	line := v1.TracedPacket{
		Time: e.Time, Interface: name, Length: e.Length, Action: e.Reason.Action().String(), Reason: e.Reason.String(),
		Service: e.Service, Backend: e.Backend, New: e.New, Mark: e.Mark, Queue: &e.Queue,
	}
	if e.Flow.Proto != 0 {
		line.Protocol, line.Source, line.Destination = lb.Protocol(e.Flow.Proto).String(), e.Flow.Source().String(), e.Flow.Destination().String()
	}
	return line
}

// servedByQueues queries which data path serves. An error means that no process answers.
func servedByQueues(cmd *cobra.Command, flags *traceFlags) (bool, *client.Client, error) {
	if cmd.Flags().Changed("pin-path") {
		return false, nil, nil
	}
	client, err := flags.Client()
	if err != nil {
		return false, nil, err
	}
	status, err := client.LBStatus(cmd.Context())
	if err != nil {
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
func traceQueue(ctx context.Context, running *client.Client, filter ebpf.TraceFilter, each func(line v1.TracedPacket, head []byte) bool) (missed uint64, err error) {
	err = running.Trace(ctx, traceQuery(filter), func(line *v1.TraceLine) bool {
		missed = line.Missed
		return line.Packet == nil || each(*line.Packet, line.Head)
	})
	return missed, err
}
