// Package stunnerd reads STUNner's stunnerd configuration and its turn URIs as gateway.Config.
package stunnerd
