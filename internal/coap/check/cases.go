package check

import (
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Cases returns the list, in the order in which it is run. TD_COAP_OBS_03 was withdrawn from it.
func Cases() []Case {
	return append(append(append(append(coreCases(), linkCases()...), blockCases()...), observeCases()...), dtlsCases()...)
}

func coreCases() []Case {
	const con, non = message.Con, message.Non
	const separatePath = "/separate"
	all := []Case{
		{ID: "31", Title: "Ping", run: ping},
		{ID: "01", Title: "GET, confirmable", Resource: "/test", run: simple(con, message.GET, message.Content)},
		{ID: "02", Title: "DELETE, confirmable", Resource: "/test", run: simple(con, message.DELETE, message.Deleted)},
		{ID: "03", Title: "PUT, confirmable", Resource: "/test", run: simple(con, message.PUT, message.Changed, message.Created)},
		{ID: "04", Title: "POST, confirmable", Resource: "/test", run: simple(con, message.POST, message.Created, message.Changed)},
		{ID: "05", Title: "GET, non-confirmable", Resource: "/test", datagram: true, run: simple(non, message.GET, message.Content)},
		{ID: "06", Title: "DELETE, non-confirmable", Resource: "/test", datagram: true, run: simple(non, message.DELETE, message.Deleted)},
		{ID: "07", Title: "PUT, non-confirmable", Resource: "/test", datagram: true, run: simple(non, message.PUT, message.Changed, message.Created)},
		{ID: "08", Title: "POST, non-confirmable", Resource: "/test", datagram: true, run: simple(non, message.POST, message.Created, message.Changed)},
		{ID: "09", Title: "GET with a separate response", Resource: separatePath, datagram: true, run: separate},
		{ID: "10", Title: "GET with a token", Resource: "/test", run: get("/test", false)},
		{ID: "11", Title: "GET with a token and a separate response", Resource: separatePath, datagram: true, run: separate},
		{ID: "12", Title: "GET with a token of length 0", Resource: "/test", run: get("/test", true)},
		{ID: "13", Title: "GET with several Uri-Path options", Resource: "/seg1/seg2/seg3", run: get("/seg1/seg2/seg3", false)},
		{ID: "14", Title: "GET with several Uri-Query options", Resource: "/query", run: get("/query?first=1&second=2&third=3", false)},
		{ID: "15", Title: "GET with a lost response", Resource: "/test", datagram: true, run: lossy},
		{ID: "16", Title: "GET with a lost separate response", Resource: separatePath, datagram: true, run: lossySeparate},
		{ID: "17", Title: "GET with a separate response, non-confirmable", Resource: separatePath, datagram: true, run: separateNon},
		{ID: "18", Title: "POST with several Location-Path options in the response", Resource: "/test", run: locationPath},
		{ID: "19", Title: "POST with several Location-Query options in the response", Resource: "/location-query", run: locationQuery},
		{ID: "20", Title: "GET with the Accept option", Resource: "/multi-format", run: accept},
		{ID: "21", Title: "GET with the ETag option", Resource: "/validate", run: validate},
		{ID: "22", Title: "PUT with the If-Match option", Resource: "/validate", run: ifMatch},
		{ID: "23", Title: "PUT with the If-None-Match option", Resource: "/create1", run: ifNoneMatch},
	}
	return named("CORE", all)
}

func linkCases() []Case {
	return named("LINK", []Case{
		{ID: "01", Title: "Discovery", Resource: discovery, run: linkAll},
		{ID: "02", Title: "Filter by a resource type", Resource: discovery, run: filtered(byType(false))},
		{ID: "03", Title: "Filter by an empty prefix of the resource type", Resource: discovery, run: filtered(having("rt"))},
		{ID: "04", Title: "Filter by one of several resource types", Resource: discovery, run: filtered(byType(true))},
		{ID: "05", Title: "Filter by a prefix of the interface", Resource: discovery, run: filtered(byInterface)},
		{ID: "06", Title: "Filter by the presence of a size", Resource: discovery, run: filtered(having("sz"))},
		{ID: "07", Title: "Filter by a target", Resource: discovery, run: filtered(byTarget(false))},
		{ID: "08", Title: "Filter by a prefix of the target", Resource: discovery, run: filtered(byTarget(true))},
		{ID: "09", Title: "Links arranged as a hierarchy", Resource: "/path", run: linkHierarchy},
	})
}

func blockCases() []Case {
	return named("BLOCK", []Case{
		{ID: "01", Title: "GET in blocks, early negotiation", Resource: "/large", run: blockGet(2)},
		{ID: "02", Title: "GET in blocks, late negotiation", Resource: "/large", run: blockGetLate},
		{ID: "03", Title: "PUT in blocks", Resource: "/large-update", run: blockPut},
		{ID: "04", Title: "POST in blocks that creates a resource", Resource: "/large-create", run: blockCreate},
		{ID: "05", Title: "POST in blocks both ways", Resource: "/large-post", run: blockPost},
		{ID: "06", Title: "GET in blocks of 16 bytes", Resource: "/large", run: blockGet(0)},
	})
}

func observeCases() []Case {
	const obs = "/obs"
	remove := request{code: message.DELETE, path: obs}
	change := request{code: message.PUT, path: obs, payload: []byte("{}"), options: []client.Option{client.UintOption(message.ContentFormat, uint32(message.JSON))}}
	return named("OBS", []Case{
		{ID: "01", Title: "Confirmable notifications", Resource: obs, run: observeCon},
		{ID: "02", Title: "Non-confirmable notifications", Resource: "/obs-non", datagram: true, run: observeNon},
		{ID: "04", Title: "The server forgets the registration, the client registers again", Resource: "/obs-reset", run: observeAgain},
		{ID: "05", Title: "The client is switched off", Resource: obs, datagram: true, run: observeOff},
		{ID: "06", Title: "The client resets a notification", Resource: obs, datagram: true, run: observeReset},
		{ID: "07", Title: "The resource is deleted", Resource: obs, run: observeEnd(remove, message.NotFound)},
		{ID: "08", Title: "The content format changes", Resource: obs, run: observeEnd(change, message.NotAcceptable)},
		{ID: "09", Title: "The resource is changed", Resource: obs, run: observeUpdate},
		{ID: "10", Title: "A GET does not end the observation", Resource: obs, run: observeGet},
		{ID: "11", Title: "A notification is lost", Resource: obs, datagram: true, run: observeLossy},
		{ID: "12", Title: "A GET with Observe 1 ends the observation", Resource: obs, run: observeCancel},
		{ID: "13", Title: "Large notifications, in blocks", Resource: "/obs-large", run: observeLarge("/obs-large")},
		{ID: "14", Title: "Notifications of varying size, in blocks", Resource: "/obs-pumping", run: observeLarge("/obs-pumping")},
	})
}

func dtlsCases() []Case {
	return named("DTLS", []Case{
		{ID: "01", Title: "Pre-shared key", Resource: "/test", dtls: true, run: pskSession},
		{ID: "02", Title: "Pre-shared key that is wrong", dtls: true, run: pskWrong},
		{ID: "03", Title: "Pre-shared key, each datagram of the handshake lost once", Resource: "/test", dtls: true, run: pskLossy},
		{ID: "04", Title: "Raw public key", Resource: "/test", dtls: true, run: rawKeySession},
		{ID: "05", Title: "Raw public key of the server is not trusted", dtls: true, run: rawKeyUntrusted},
		{ID: "06", Title: "Raw public key of the client is not trusted", dtls: true, run: rawKeyUnknown},
		{ID: "07", Title: "Raw public key, each datagram of the handshake lost once", Resource: "/test", dtls: true, run: rawKeyLossy},
	})
}

// named completes the ids.
func named(group string, cases []Case) []Case {
	for i := range cases {
		cases[i].ID = "TD_COAP_" + group + "_" + cases[i].ID
	}
	return cases
}
