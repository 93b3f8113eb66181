package tcpscale

import (
	"math/rand/v2"
	"net/netip"
	"slices"
)

// ServerGroup is a server of several workers on the same ports.
type ServerGroup struct {
	*Group
	Listen  []netip.AddrPort // with the real port where 0 was requested
	release []func()
}

// StartServer reserves the addresses of the configuration and starts the workers on them. No one else may
// listen there, not even another server of this kind.
func StartServer(launcher Launcher, config ServerConfig, workers int) (_ *ServerGroup, err error) {
	s := &ServerGroup{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	config.Generation, config.Listen = rand.Uint64(), slices.Clone(config.Listen)
	for i, address := range config.Listen {
		err := launcher.do(func() error {
			real, release, err := Reserve(address)
			if err == nil {
				config.Listen[i] = real
				s.release = append(s.release, release)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	s.Listen = config.Listen
	s.Group, err = StartGroup(launcher, ServerWorkers(config, workers))
	return s, err
}

// Close ends the workers at once and gives the addresses back.
func (s *ServerGroup) Close() {
	if s.Group != nil {
		s.Kill()
	}
	for _, release := range s.release {
		release()
	}
	s.release = nil
}
