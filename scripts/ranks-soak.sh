#!/bin/sh
# Ranks that are killed at every moment, 2,000 requests at once, and two nodes (network namespaces and control groups, so root): a cut
# link, and Qwen2-7B at full size, which takes 12 GiB and some minutes.
set -eu
cd "$(dirname "$0")/.."
exec go test -tags clients,soak -count=1 -timeout 60m -run TestSoakRanks -v ./tests/clients
