package bgp

import (
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// gracefulShutdown is the community of RFC 8326.
const gracefulShutdown = 0xFFFF0000

func familyOf(is4 bool) bgp.Family {
	if is4 {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}

// pathOf is a route as GoBGP wants it. A next hop of zeros becomes this end of each session.
func pathOf(settings *lb.BGP, route announce.Route) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(route.Prefix)
	if err != nil {
		return nil, err
	}
	is4 := route.Prefix.Addr().Is4()
	path := &apiutil.Path{Family: familyOf(is4), Nlri: nlri, Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)}}
	hop := settings.NextHop6
	if is4 {
		hop = settings.NextHop4
	}
	if is4 {
		if !hop.IsValid() {
			hop = netip.IPv4Unspecified()
		}
		attribute, err := bgp.NewPathAttributeNextHop(hop)
		if err != nil {
			return nil, err
		}
		path.Attrs = append(path.Attrs, attribute)
	} else {
		if !hop.IsValid() {
			hop = netip.IPv6Unspecified()
		}
		attribute, err := bgp.NewPathAttributeMpReachNLRI(path.Family, []bgp.PathNLRI{{NLRI: nlri}}, hop)
		if err != nil {
			return nil, err
		}
		path.Attrs = append(path.Attrs, attribute)
	}
	path.Attrs = append(path.Attrs, preferences(settings, route.State == announce.Retiring)...)
	return path, nil
}

// preferences are the attributes by which routers choose.
func preferences(settings *lb.BGP, retiring bool) (all []bgp.PathAttributeInterface) {
	if settings.Prepends > 0 {
		path := bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, slices.Repeat([]uint32{settings.AS}, settings.Prepends))
		all = append(all, bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{path}))
	}
	preference := settings.LocalPreference
	var plain []uint32
	var large []*bgp.LargeCommunity
	for _, c := range settings.Communities {
		if c.Large {
			large = append(large, bgp.NewLargeCommunity(c.A, c.B, c.C))
		} else {
			plain = append(plain, c.Number())
		}
	}
	if retiring {
		preference = 0
		if !slices.Contains(plain, gracefulShutdown) {
			plain = append(plain, gracefulShutdown)
		}
	}
	all = append(all, bgp.NewPathAttributeLocalPref(preference))
	if len(plain) > 0 {
		all = append(all, bgp.NewPathAttributeCommunities(plain))
	}
	if len(large) > 0 {
		all = append(all, bgp.NewPathAttributeLargeCommunities(large))
	}
	return all
}
