#!/usr/bin/env bash
# Runs the examples of examples/ranks that this machine can run: two ranks by mpirun and by Ray, which it installs into
# .cache/ray, and the manifests against the definitions of their custom resources, which it fetches by the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.cache/ray/bin/python
if ! "$python" -c 'import ray' 2>/dev/null; then
	python3 -m venv .cache/ray
	"$python" -m pip install -q ray==2.60.0
fi

dirs=()
for module in sigs.k8s.io/lws@v0.6.2 sigs.k8s.io/lws@v0.9.0 github.com/kubeflow/mpi-operator@v0.6.0; do
	dir=$(cd / && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	dirs+=("$dir/config/crd/bases" "$dir/manifests/base")
done
VAPP_CRDS=$(IFS=:; echo "${dirs[*]}") VAPP_RAY_PYTHON=$PWD/$python CGO_ENABLED=0 \
	go test -tags soak -count="${COUNT:-1}" -timeout 30m -run 'TestRank' -v .
