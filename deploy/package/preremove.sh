#!/bin/sh
# Before a removal, but not before an upgrade. deb: remove or upgrade; rpm: 0 or 1.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now weir-lb.service weir-coap.service weir-turn.service weir-tcp-stats.service
fi
# The kernel data path outlives its process: this ends it.
[ ! -d /sys/fs/bpf/weir/lb ] || /usr/bin/weir lb stop
