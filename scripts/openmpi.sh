#!/bin/sh
# Installs Open MPI, by which ranks on CPUs are started and connected, where it is missing and this is root on Debian or
# Ubuntu. Elsewhere it says what to install: the tests of ranks are skipped without it.
set -eu
command -v mpirun >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "openmpi: installing openmpi-bin" >&2
	apt-get update -qq >/dev/null 2>&1 || true
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openmpi-bin >/dev/null || true
fi
command -v mpirun >/dev/null ||
	echo "openmpi: there is no mpirun on the path: the tests of ranks on CPUs are skipped (Debian, Ubuntu: apt-get install openmpi-bin)" >&2
