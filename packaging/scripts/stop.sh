#!/bin/sh
# Before removal, not before an upgrade: the server stops.
case ${1:-} in
remove | 0) [ ! -d /run/systemd/system ] || systemctl --no-reload disable --now vapp.socket vapp.service || : ;;
esac
