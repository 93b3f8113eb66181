// Package replay runs packets through the steering engine and says what became of each: backend, reason, and the steps that led to
// it. Early fragments are held until their first one comes, as a data path holds them; time is that of the capture.
//
// It does no I/O. One [Tracer] is for one goroutine.
//
//	tracer := replay.New(snapshot)
//	err := tracer.Text("udp 10.0.0.1:5000 > 192.0.2.1:5684")
//	fmt.Println(tracer.Rows[0].Backend, tracer.Rows[0].Why)
package replay
