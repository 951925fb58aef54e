package appliance

import (
	"fmt"
	"net"
	"strings"

	"vapp.dev/appliance/launcher"
)

// ownAddress returns the address at which other ranks reach this host: the loopback address if all are here, else
// the first of the host's own in the networks of the ranks, IPv4 before IPv6.
func ownAddress(p launcher.Place) (string, error) {
	if p.LocalWorld == p.World {
		return "127.0.0.1", nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	best := ""
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addrs {
			ip, ok := a.(*net.IPNet)
			switch {
			case !ok || !ip.IP.IsGlobalUnicast() || !within(p.Networks, i.Name, ip.IP):
			case ip.IP.To4() != nil:
				return ip.IP.String(), nil
			case best == "":
				best = ip.IP.String()
			}
		}
	}
	if best == "" {
		return "", fmt.Errorf("this host has no address that another host can reach%s; name one: --leader HOST:PORT", inNetworks(p.Networks))
	}
	return best, nil
}

// within reports whether an address of an interface is in networks.
func within(networks, name string, ip net.IP) bool {
	if networks == "" {
		return true
	}
	for n := range strings.SplitSeq(networks, ",") {
		if _, cidr, err := net.ParseCIDR(n); n == name || err == nil && cidr.Contains(ip) {
			return true
		}
	}
	return false
}

func inNetworks(networks string) string {
	if networks == "" {
		return ""
	}
	return " in " + networks + " (btl_tcp_if_include)"
}
