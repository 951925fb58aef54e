package fetch

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// special are the ranges without hosts of the public internet that net/netip has no word for.
var special = func() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8",                                         // this network
		"100.64.0.0/10",                                     // shared addresses of providers; metadata of Alibaba Cloud
		"168.63.129.16/32",                                  // the host of a virtual machine at Azure
		"192.0.0.0/24",                                      // protocol assignments; metadata of Oracle Cloud
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", // documentation
		"192.88.99.0/24", // relays of 6to4
		"198.18.0.0/15",  // benchmarks
		"240.0.0.0/4",    // reserved, broadcast

		"2001::/23",     // protocol assignments, Teredo: it has IPv4 addresses inside
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4: it has IPv4 addresses inside
		"3fff::/20",     // documentation
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// unicast6 has the IPv6 addresses that are assigned to hosts. What is outside of it is
// loopback, private, link-local, multicast, reserved, or IPv4 inside of IPv6 (::ffff:0:0/96,
// 64:ff9b::/96).
var unicast6 = netip.MustParsePrefix("2000::/3")

// Blocked returns whether an address is not of a public host: loopback, private, link-local,
// metadata of a cloud, multicast, reserved, or one that contains an IPv4 address.
func Blocked(a netip.Addr) bool {
	if a.Is4In6() || !a.IsValid() || a.Zone() != "" {
		return true
	}
	if a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return true
	}
	if a.Is6() && !unicast6.Contains(a) {
		return true
	}
	for _, p := range special {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// errBlocked is the error of a connection to a blocked address. %s is the address.
type errBlocked struct{ address string }

func (e *errBlocked) Error() string { return "connection to the blocked address " + e.address }

// control runs before a socket connects: address is where to, after names are resolved.
func (f *Fetcher) control(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || f.blocked(a) {
		return &errBlocked{address}
	}
	return nil
}

// Domain returns a host of the policy in the form that hosts of URLs are compared in. It
// refuses what no URL can match: a URL, a port, a wildcard, an address in another form than
// RFC 5952's or four decimal numbers.
func Domain(s string) (string, error) {
	name, err := host(s)
	if err != nil {
		return "", fmt.Errorf("%q is not a host name: %w", s, err)
	}
	return name, nil
}

var (
	errHostEmpty   = errors.New("it, or a part between its dots, is empty")
	errHostNumber  = errors.New("it ends in a number and is no IPv4 address of four decimal numbers")
	errHostZone    = errors.New("addresses with a zone are not reached")
	errHostAddress = errors.New("it is no IPv6 address in brackets")
	errHostLetters = errors.New("it has characters that host names have not")
)

// names brings host names into ASCII as browsers do; underscores, which some hosts have, stay.
var names = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// host returns a host name in lower case, in ASCII, without the dot of the root, and an IPv6
// address in brackets. Numbers that some resolvers take for an address (2130706433, 0x7f.1,
// 0177.0.0.1) are refused: they would be compared as names and reached as addresses.
func host(s string) (string, error) {
	if strings.HasPrefix(s, "[") || strings.Contains(s, ":") {
		inner, closed := strings.CutSuffix(strings.TrimPrefix(s, "["), "]")
		a, err := netip.ParseAddr(inner)
		switch {
		case err != nil || !a.Is6() || closed != strings.HasPrefix(s, "["):
			return "", errHostAddress
		case a.Zone() != "":
			return "", errHostZone
		}
		return "[" + a.String() + "]", nil
	}
	name, err := names.ToASCII(s)
	if err != nil || !utf8.ValidString(s) {
		return "", errHostLetters
	}
	if again, err := names.ToASCII(name); err != nil || again != name {
		return "", errHostLetters
	}
	name = strings.TrimSuffix(name, ".")
	if name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "..") {
		return "", errHostEmpty
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String(), nil
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", errHostNumber
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return "", errHostLetters
		}
	}
	return name, nil
}
