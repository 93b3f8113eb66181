package v1

// PartHeader is the header of every answer of the admin API. It names the part that answers: lb, nat, turn, coap or decap.
const PartHeader = "Weir-Part"

// ConsoleProtocol is the Upgrade token of POST /console that makes the connection a stream of lines both ways.
const ConsoleProtocol = "weir-console"

// Route is one element of the list that GET /routes answers.
type Route struct {
	Pattern string `json:"pattern"` // method and path, such as "GET /status"
	Open    bool   `json:"open"`    // it needs no credential
}

// Refusal is the answer of a request that failed, with the status 4xx or 5xx.
type Refusal struct {
	Error      string `json:"error"`                // for people
	Generation uint64 `json:"generation,omitempty"` // number of the configuration in force, where a request wanted another one (412); absent: any other refusal
	ETag       string `json:"etag,omitempty"`       // likewise; absent: likewise
}
