package appliance

import (
	"net"
	"strings"
	"testing"

	"vapp.dev/appliance/launcher"
)

// TestOwnAddress: rank 0 listens in the networks that the ranks may use.
func TestOwnAddress(t *testing.T) {
	for _, c := range []struct {
		networks, name, ip string
		want               bool
	}{
		{"", "eth0", "10.1.2.3", true},
		{"eth0", "eth0", "10.1.2.3", true},
		{"eth0", "eth1", "10.1.2.3", false},
		{"10.1.0.0/16", "eth1", "10.1.2.3", true},
		{"10.2.0.0/16", "eth1", "10.1.2.3", false},
		{"10.2.0.0/16,eth1", "eth1", "10.1.2.3", true},
		{"fd00::/8", "eth1", "fd00::1", true},
	} {
		if got := within(c.networks, c.name, net.ParseIP(c.ip)); got != c.want {
			t.Errorf("%s of %s in %q: %v", c.ip, c.name, c.networks, got)
		}
	}
	if at, err := ownAddress(launcher.Place{World: 2, LocalWorld: 2, Networks: "none"}); at != "127.0.0.1" || err != nil {
		t.Error(at, err)
	}
	_, err := ownAddress(launcher.Place{World: 2, LocalWorld: 1, Networks: "no interface"})
	if err == nil || !strings.Contains(err.Error(), "no address that another host can reach in no interface (btl_tcp_if_include); name one: --leader HOST:PORT") {
		t.Error(err)
	}
}
