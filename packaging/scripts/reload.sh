#!/bin/sh
# After installation and removal: systemd reads the units again. Nothing is started or enabled.
[ ! -d /run/systemd/system ] || systemctl daemon-reload
