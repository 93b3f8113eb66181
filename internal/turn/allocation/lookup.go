package allocation

// lookup is a small map: a list that is searched in order, with an additional index once it is long.
type lookup[K comparable, V any] struct {
	keys   []K
	values []V
	index  map[K]int // nil while short
}

const short = 8

func (l *lookup[K, V]) find(k K) int {
	if l.index != nil {
		if i, ok := l.index[k]; ok {
			return i
		}
		return -1
	}
	for i := range l.keys {
		if l.keys[i] == k {
			return i
		}
	}
	return -1
}

// get returns the value of a key, or the zero value.
func (l *lookup[K, V]) get(k K) (v V) {
	if i := l.find(k); i >= 0 {
		return l.values[i]
	}
	return v
}

// put adds a key that is not in the map yet.
func (l *lookup[K, V]) put(k K, v V) {
	l.keys, l.values = append(l.keys, k), append(l.values, v)
	if l.index != nil {
		l.index[k] = len(l.keys) - 1
	} else if len(l.keys) > short {
		l.index = make(map[K]int, 2*short)
		for i, k := range l.keys {
			l.index[k] = i
		}
	}
}

// drop removes a key and moves the last entry to its position.
func (l *lookup[K, V]) drop(k K) {
	i := l.find(k)
	if i < 0 {
		return
	}
	last := len(l.keys) - 1
	if l.index != nil {
		delete(l.index, k)
		if i != last {
			l.index[l.keys[last]] = i
		}
	}
	l.keys[i], l.values[i] = l.keys[last], l.values[last]
	clear(l.values[last:])
	l.keys, l.values = l.keys[:last], l.values[:last]
}
