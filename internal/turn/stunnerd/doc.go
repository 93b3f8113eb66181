// Package stunnerd converts the input of STUNner's stunnerd, its configuration (API v1 and v1alpha1, YAML or JSON) and its turn
// URIs, to gateway.Config.
//
//	version: v1
//	admin: {name, loglevel, metrics_endpoint, healthcheck_endpoint, user_quota, offload_engine, offload_interfaces, license_config}
//	auth: {type: static|ephemeral|none, realm, credentials: {username, password} or {secret}}
//	listeners: [{name, protocol: TURN-UDP, address, port, public_address, public_port, cert, key, routes: [cluster]}]
//	clusters: [{name, type: STATIC|STRICT_DNS, protocol: udp|tcp, endpoints: ["10.0.0.0/8:<10000-20000>"]}]
//
// It hides the format: the caller decodes a Config from a file with a YAML library, and Convert returns what to run,
// what else to serve (health, metrics) and Notes for the operator about everything that has another effect here.
//
// $VAR and ${VAR} are replaced in every value except the credentials, after the file was parsed: a variable can change a
// value but never the structure. Another API version and an invalid address are errors; unknown keys, and keys
// in another case, are warnings of the decoder, because stunnerd accepts them.
//
//	file, document, warnings, err := config.DecodeForeign[stunnerd.Config](name, text)
//	result, err := file.Convert(os.Getenv)
//
// Bootstrap, Deleted, IsDeleted and PatchNode are what STUNner's config discovery service adds: the configuration before the first one, the
// notice that one was deleted, and the address of a node. Package kube/discovery carries configurations.
package stunnerd
