//go:build tools

package routers

import _ "sigs.k8s.io/gateway-api-inference-extension/cmd/epp/runner"
