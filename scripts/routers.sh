#!/usr/bin/env bash
# Runs vapp behind routers: the endpoint picker of the Gateway API Inference Extension, built from its module, and vllm-router
# from PyPI; and has llm-d's reader of KV events read those of two servers. KUBERNETES_BIN is the folder with etcd and kube-apiserver (default: .cache/kubernetes/bin). Arguments go to go test.
# The router of vLLM's production stack is in no registry: PRODUCTION_STACK is a checkout of its sources, where there is one, and
# PYTHON312 a Python of 3.12 or newer (python3.12).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/.cache/routers
mkdir -p "$out"
KUBERNETES_BIN=$(realpath -m "${KUBERNETES_BIN:-.cache/kubernetes/bin}")
for program in etcd kube-apiserver; do
	[ -x "$KUBERNETES_BIN/$program" ] || { echo "routers: $KUBERNETES_BIN has no $program; make kubernetes builds it, or set KUBERNETES_BIN" >&2; exit 1; }
done
version=0.1.17
if ! "$out/python/bin/pip" show vllm-router 2>/dev/null | grep -qx "Version: $version"; then
	python3 -m venv "$out/python"
	"$out/python/bin/pip" -q install "vllm-router==$version"
fi
stack=
if [ -n "${PRODUCTION_STACK:-}" ]; then
	stack=$out/production-stack/bin/vllm-router
	[ -x "$stack" ] || {
		"${PYTHON312:-python3.12}" -m venv "$out/production-stack"
		SETUPTOOLS_SCM_PRETEND_VERSION=0 "$out/production-stack/bin/pip" -q install "$PRODUCTION_STACK"
	}
else
	echo "routers: not run, PRODUCTION_STACK is not set: the router of vLLM's production stack" >&2
fi
cd tests/kubernetes/routers
CGO_ENABLED=0 go build -ldflags "-s -w" -o "$out/epp" sigs.k8s.io/gateway-api-inference-extension/cmd/epp
VAPP="${VAPP:-$root/bin/vapp}" VAPP_PROFILE="$root/profiles/smollm2.cue" EPP="$out/epp" EPP_MODULE="$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api-inference-extension)" VLLM_ROUTER_PYTHON="$out/python/bin/python" PRODUCTION_STACK_ROUTER="$stack" \
	KUBERNETES_BIN="$KUBERNETES_BIN" CGO_ENABLED=0 go test -count=1 -timeout 20m "$@" .
