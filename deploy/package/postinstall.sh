#!/bin/sh
# After an installation or an upgrade. deb: configure [OLD-VERSION]; rpm: 1 or 2.
set -e

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers weir.conf
elif command -v useradd >/dev/null; then
	grep -q '^weir:' /etc/passwd || useradd --system --user-group --home-dir /var/lib/weir --shell /usr/sbin/nologin weir
else
	echo "weir: neither systemd-sysusers nor useradd is here: the services need a user named weir" >&2
fi

[ -d /run/systemd/system ] || exit 0
systemd-tmpfiles --create weir.conf || true # without a bpf file system there is no kernel data path
systemctl daemon-reload
case "$1:$2" in
configure:?* | 2:*)
	# Sockets, sessions and pinned flows outlive these restarts: docs/install.md. What does not run is not started.
	systemctl try-restart weir-lb.service weir-coap.service weir-turn.service weir-tcp-stats.service
	;;
esac
