package pins

import (
	stdmaps "maps"
	"slices"

	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// GenerationOf is what the journal keeps of a generation.
func GenerationOf(services map[string]*maps.Service) Generation {
	var t Generation
	for _, name := range slices.Sorted(stdmaps.Keys(services)) {
		a := services[name]
		s := Service{
			Name: name, Number: a.Number, Mode: a.Spec.Mode, Size: maps.TableSize(a.Spec),
			Maglev: [2]int{a.Maglev.Start, a.Maglev.Length}, Earlier: [2]int{a.Earlier.Start, a.Earlier.Length},
		}
		for _, r := range a.Owners {
			s.Owners = append(s.Owners, [2]int{r.Start, r.Length})
		}
		for i, b := range a.Spec.Backends {
			s.Backends = append(s.Backends, Backend{
				Name: b.Name, Slot: a.Slots[i], Mark: b.Mark, Address4: b.Address4, Address6: b.Address6, Port: b.Port,
			})
		}
		t.Services = append(t.Services, s)
	}
	return t
}

// Rebuild rebuilds as much of a service as the next change and the counters look at.
func (s *Service) Rebuild() *lb.Service {
	service := &lb.Service{Name: s.Name, Mode: s.Mode}
	if s.Size > 0 && s.Size <= s.Maglev[1] {
		service.Maglev = make([]int32, s.Size) // its length counts: the array holds the rest
	}
	for i, b := range s.Backends {
		service.Backends = append(service.Backends, &lb.Backend{
			Index: i, Name: b.Name, Mark: b.Mark, Address4: b.Address4, Address6: b.Address6, Port: b.Port, Service: service,
		})
	}
	return service
}
