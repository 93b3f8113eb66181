package tcpscale

import (
	"math/rand/v2"
	"net/netip"
	"slices"
)

// ServerCrew is a server of several workers on the same ports.
type ServerCrew struct {
	*Crew
	Listen  []netip.AddrPort // with the real port where 0 was asked for
	release []func()
}

// StartServer reserves the addresses of the configuration at that place and starts the workers on them. Nobody else may
// listen there, not even another server of this kind.
func StartServer(place Place, config ServerConfig, workers int) (_ *ServerCrew, err error) {
	s := &ServerCrew{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	config.Generation, config.Listen = rand.Uint64(), slices.Clone(config.Listen)
	for i, address := range config.Listen {
		err := place.do(func() error {
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
	s.Crew, err = StartCrew(place, ServerWorkers(config, workers))
	return s, err
}

// Close ends the workers at once and gives the addresses back.
func (s *ServerCrew) Close() {
	if s.Crew != nil {
		s.Kill()
	}
	for _, release := range s.release {
		release()
	}
	s.release = nil
}
