#!/bin/sh
# Runs mpirun with the given arguments and drains on SIGTERM: mpirun itself would kill its ranks a second after it. SIGUSR1 goes
# through mpirun to every rank, and rank 0 lets the running requests end. Open MPI's own connections see a cut link after 5 s, and
# not after 5 minutes.
mpirun --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 "$@" &
pid=$!
trap 'kill -USR1 "$pid"' TERM INT
wait "$pid"
code=$?
while kill -0 "$pid" 2>/dev/null; do # a signal has ended the wait
	wait "$pid"
	code=$?
done
exit "$code"
