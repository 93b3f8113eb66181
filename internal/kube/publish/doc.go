// Package publish brings the configurations of operator controllers to data planes.
package publish
