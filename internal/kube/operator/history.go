package operator

// maxRevisions is how many published revisions of a plane are remembered: a data plane that reports an older one is treated as one
// that runs none.
const maxRevisions = 64

// history remembers what the pieces of published configurations were.
type history struct {
	planes map[string]*revisions
}

type revisions struct {
	pieces map[string]map[string]string // by revision
	order  []string                     // the oldest first
}

// add remembers the configurations of a round and forgets planes that are gone.
func (h *history) add(configs []Config) {
	next := map[string]*revisions{}
	for i := range configs {
		c := &configs[i]
		r := h.planes[c.Plane]
		if r == nil {
			r = &revisions{pieces: map[string]map[string]string{}}
		}
		r.add(c.Revision(), c.Pieces)
		next[c.Plane] = r
	}
	h.planes = next
}

func (r *revisions) add(revision string, pieces map[string]string) {
	if _, ok := r.pieces[revision]; !ok {
		r.order = append(r.order, revision)
	}
	r.pieces[revision] = pieces
	for len(r.order) > maxRevisions {
		delete(r.pieces, r.order[0])
		r.order = r.order[1:]
	}
}

// applied returns the pieces that planes run, whose revisions are given.
func (h *history) applied(running map[string]string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for plane, revision := range running {
		if r := h.planes[plane]; r != nil && r.pieces[revision] != nil {
			all[plane] = r.pieces[revision]
		}
	}
	return all
}
