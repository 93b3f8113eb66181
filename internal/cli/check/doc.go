// Package check is weir check: is a configuration file of any part of Weir good, and what does it mean?
package check
