// Package sim is weir sim: what would take hours, in virtual time.
package sim
