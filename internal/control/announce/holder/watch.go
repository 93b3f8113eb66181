package holder

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watcher calls changed with the index of each interface whose link or addresses change; 0: changes were missed.
type watcher struct {
	socket *nl.NetlinkSocket
	closed atomic.Bool
}

func newWatcher(changed func(index int, link bool)) (*watcher, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("follow links and addresses: %w", err)
	}
	w := &watcher{socket: socket}
	go w.run(changed)
	return w, nil
}

func (w *watcher) run(changed func(index int, link bool)) {
	for {
		messages, _, err := w.socket.Receive()
		switch {
		case w.closed.Load():
			return
		case err != nil: // such as ENOBUFS: changes were lost
			time.Sleep(10 * time.Millisecond)
			changed(0, true)
			continue
		}
		for _, m := range messages {
			if index, link, ok := eventOf(m.Header.Type, m.Data); ok {
				changed(index, link)
			}
		}
	}
}

// eventOf reads the interface of a message: struct ifinfomsg and struct ifaddrmsg have it at the same place.
func eventOf(kind uint16, data []byte) (index int, link, ok bool) {
	if len(data) < 8 {
		return 0, false, false
	}
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		link = true
		if data[0] != unix.AF_UNSPEC { // of a bridge or of IPv6: the link itself is as before
			return 0, false, false
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
	default:
		return 0, false, false
	}
	return int(binary.NativeEndian.Uint32(data[4:])), link, true
}

// close ends the watcher; changed may still be called once.
func (w *watcher) close() {
	w.closed.Store(true)
	w.socket.Close()
}
