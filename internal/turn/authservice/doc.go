// Package authservice gives out credentials for TURN gateways over HTTP, as STUNner's authentication service does: the REST API for
// access to TURN services (draft-uberti-behave-turn-rest-00), and whole ICE configurations for RTCPeerConnection.
//
//	GET /?service=turn&username=&ttl=&key=&namespace=&gateway=&listener=&public-addr=   {username, password, ttl, uris}
//	GET /ice?service=turn&…&iceTransportPolicy=all|relay|public                         {iceServers: [{username, credential, urls}], iceTransportPolicy}
//
// The credentials are those of the configurations that gateways have now: Set and Remove follow them. With ephemeral authentication they are
// made for ttl seconds, a day by default: the user name is EXPIRY or EXPIRY:USERNAME, the password base64 of HMAC-SHA1 of it. With static
// authentication they are the user's. A gateway without authentication, and a listener without a public address, has no credentials.
//
// / answers for one gateway, the first by name that fits; /ice for all that fit.
//
// Errors are a line of text: 400 for a wrong parameter, 403 without the right key, 404 if no listener fits, 500 without any configuration.
// Nothing that is logged, counted or shown in Stats has a credential, a secret or a user name.
//
// Limits: discovery.MaxConfigs configurations; a username of 256 bytes, a ttl of a year.
package authservice
