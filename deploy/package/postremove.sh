#!/bin/sh
# After a removal. deb: remove or purge; rpm: 0, and 1 after an upgrade.
set -e

case "$1" in
remove | purge | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
[ "$1" != remove ] || exit 0 # configuration and state are kept until the purge

rm -rf /run/weir /var/lib/weir
rmdir /sys/fs/bpf/weir 2>/dev/null || true
rmdir /etc/weir 2>/dev/null || true # what the operator has put there stays
if command -v userdel >/dev/null && grep -q '^weir:' /etc/passwd; then userdel weir; fi
