#!/bin/sh
# kubernetes.sh: builds a Kubernetes control plane from its modules into .cache/kubernetes/bin: etcd,
# kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and the controller of
# LeaderWorkerSet; and puts the definitions of the chart's other resources into
# .cache/kubernetes/definitions. What is there for the same modules stays. The first time takes ten minutes on two
# cores; a program then takes 5 to 190 s.
set -eu
cd "$(dirname "$0")/.."
to=$PWD/.cache/kubernetes/bin
from=$PWD/tests/kubernetes/controlplane/build
mkdir -p "$to"
export CGO_ENABLED=0 GOFLAGS=-trimpath
build() { # build NAME FOLDER PACKAGE [LDFLAGS]
	sum=$(cat "$from/$2/go.mod" "$from/$2/go.sum" | sha256sum)
	if [ -x "$to/$1" ] && [ "$(cat "$to/$1.sum" 2>/dev/null)" = "$sum" ]; then
		return
	fi
	echo "kubernetes: building $1"
	(cd "$from/$2" && go build -ldflags "-s -w ${4:-}" -o "$to/$1" "$3")
	echo "$sum" >"$to/$1.sum"
}
version=$(sed -n 's/^require k8s.io\/kubernetes //p; s/^\tk8s.io\/kubernetes \(v[^ ]*\).*/\1/p' "$from/kubernetes/go.mod" | head -1)
set_version="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(echo "$version" | cut -d. -f2)"
build etcd etcd go.etcd.io/etcd/server/v3
for p in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
	build $p kubernetes k8s.io/kubernetes/cmd/$p "$set_version"
done
build lws-controller lws sigs.k8s.io/lws/cmd
(cd "$from/lws" && go list -m -f '{{.Dir}}' sigs.k8s.io/lws) >"$to/lws.dir"

# The definitions of the resources that the chart has as options, from their modules.
definitions=$PWD/.cache/kubernetes/definitions
mkdir -p "$definitions"
define() { # define MODULE@VERSION FILE...
	module=$1
	shift
	dir=$(cd "$from/lws" && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	for f in "$@"; do
		install -m 644 "$dir/$f" "$definitions/$(basename "$f")"
	done
}
define sigs.k8s.io/gateway-api@v1.4.0 config/crd/standard/gateway.networking.k8s.io_httproutes.yaml
define sigs.k8s.io/gateway-api-inference-extension@v1.5.0 config/crd/bases/inference.networking.k8s.io_inferencepools.yaml
define github.com/kedacore/keda/v2@v2.18.0 config/crd/bases/keda.sh_scaledobjects.yaml
define github.com/prometheus-operator/prometheus-operator@v0.85.0 \
	example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml
