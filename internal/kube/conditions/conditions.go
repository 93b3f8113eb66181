package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Set collects the conditions of one object, listener or parent.
type Set struct {
	before     []metav1.Condition
	generation int64
	now        metav1.Time
	all        []metav1.Condition
}

// New begins the conditions of an object of this generation, which had those of before.
func New(before []metav1.Condition, generation int64, now time.Time) *Set {
	return &Set{before: before, generation: generation, now: metav1.NewTime(now)}
}

// Set sets a condition. The time of its last transition stays that of before where its status is the same.
func (s *Set) Set(kind string, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{Type: kind, Status: status, ObservedGeneration: s.generation, LastTransitionTime: s.now, Reason: reason, Message: message}
	if old := Find(s.before, kind); old != nil && old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	for i := range s.all {
		if s.all[i].Type == kind {
			s.all[i] = c
			return
		}
	}
	s.all = append(s.all, c)
}

// True sets a condition that is true.
func (s *Set) True(kind, reason, message string) { s.Set(kind, metav1.ConditionTrue, reason, message) }

// False sets a condition that is false.
func (s *Set) False(kind, reason, message string) {
	s.Set(kind, metav1.ConditionFalse, reason, message)
}

// Is says whether a condition was set to true.
func (s *Set) Is(kind string) bool {
	c := Find(s.all, kind)
	return c != nil && c.Status == metav1.ConditionTrue
}

// All returns the conditions that were set, in the order in which they were; others of before are dropped.
func (s *Set) All() []metav1.Condition { return s.all }

// Find returns the condition of a type; nil: there is none.
func Find(all []metav1.Condition, kind string) *metav1.Condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// Keep adds a condition of before as it is, such as that of another controller.
func (s *Set) Keep(c metav1.Condition) { s.all = append(s.all, c) }
