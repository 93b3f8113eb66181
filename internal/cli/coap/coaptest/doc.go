// Package coaptest runs weir coap server for tests.
package coaptest
