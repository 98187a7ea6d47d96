// Package fakeopenai is a fake OpenAI-compatible upstream for tests and for
// bench, and the witness of every load test: it counts exactly, on the far side
// of the wire, how many calls were in flight, how many were answered, how many
// the client gave up, and which tokens it reported.
//
// It serves POST …/chat/completions (stream and not) and GET …/models under any
// prefix, in the forms that api.openai.com uses. What it does with a request is
// a Behaviour, chosen by a Script; a Gate holds requests and lets them go one by
// one, so that a test needs no sleeps.
//
// # What "in flight" means
//
// A call is in flight from the moment its request has been read whole until
// just before the last bytes of its answer are written (so a client that starts
// its next call on reading the answer is never counted twice), or until its
// client has closed the connection. The second is looked up in the kernel
// whenever a new peak would be recorded, so a call that was cancelled by the
// client is not counted beside the call that took its place, even when the
// server has not yet been told. That look-up needs Linux, a server run by Start
// or Serve, and at most 1024 calls in flight; elsewhere a cancelled call counts
// until net/http reports it gone, some microseconds later.
//
// # Whose call it is
//
// Calls are counted per model and per class marker. The marker is the request
// header ClassHeader where it is set, else the field "user" of the body, which
// passes through a gateway; the empty marker is a class of its own.
package fakeopenai
