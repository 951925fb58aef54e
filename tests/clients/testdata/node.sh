#!/bin/sh
# Runs a command on a "node": a network namespace with a host name and a control group of its own. mpirun calls it in place of ssh:
# node.sh ADDRESS COMMAND…, where the last number of the address is the node's.
# VAPP_NODES is the beginning of the namespaces' names, VAPP_NODE_GROUP_n the file cgroup.procs of node n's control group.
set -eu
n=${1##*.}
shift
eval "echo $$ > \"\$VAPP_NODE_GROUP_$n\""
exec nsenter --net="/run/netns/$VAPP_NODES$n" unshare --uts sh -c "hostname node$n; $*"
