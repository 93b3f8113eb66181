// Package lab is weir lab: networks of namespaces, built, entered and taken down.
package lab
