// Package files reads the configuration files of the parts, for the commands that run them and for weir check.
package files
