package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// httpCaller speaks just enough HTTP/1.1 over one kept connection. It costs a
// fraction of net/http's client, so that the load leaves the machine to the
// processes under test.
type httpCaller struct {
	addr   string
	body   body
	stream bool
	req    []byte
	bodyAt int
	conn   net.Conn
	br     *bufio.Reader
	buf    []byte
}

func dialHTTP(addr string, b body, stream bool) (*httpCaller, error) {
	c := &httpCaller{addr: addr, body: b, stream: stream}
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer test\r\nContent-Type: application/json\r\n"+
		"Accept: application/json\r\nUser-Agent: sluice-bench\r\nX-LLM-Process: bench-http\r\nContent-Length: %d\r\n\r\n", addr, len(b.text))
	c.req = append([]byte(head), b.text...)
	c.bodyAt = len(head)
	return c, c.connect()
}

func (c *httpCaller) connect() error {
	conn, err := net.DialTimeout("tcp", c.addr, callLimit)
	if err != nil {
		return err
	}
	c.conn, c.br = conn, bufio.NewReaderSize(conn, 8<<10)
	return nil
}

func (c *httpCaller) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *httpCaller) call(seq uint64) error {
	if c.conn == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	keep, err := c.exchange(seq)
	if err != nil || !keep {
		c.close()
	}
	return err
}

func (c *httpCaller) exchange(seq uint64) (keep bool, err error) {
	c.body.number(c.req, c.bodyAt, seq)
	_ = c.conn.SetDeadline(time.Now().Add(callLimit))
	if _, err := c.conn.Write(c.req); err != nil {
		return false, err
	}
	h, err := readHead(c.br)
	if err != nil {
		return false, err
	}
	if c.buf, err = readBody(c.br, h, c.buf[:0]); err != nil {
		return false, err
	}
	if h.status != 200 {
		return h.keep, unexpected("status "+strconv.Itoa(h.status), c.buf)
	}
	return h.keep, c.check()
}

// check looks at the answer closely enough to notice one that is cut or empty.
func (c *httpCaller) check() error {
	if !c.stream {
		if len(c.buf) < 1000 || !bytes.Contains(c.buf, []byte(`"total_tokens":`)) {
			return unexpected("no whole answer", c.buf)
		}
		return nil
	}
	if n := bytes.Count(c.buf, []byte("data: ")); n < streamChunks+2 || !bytes.HasSuffix(c.buf, []byte("data: [DONE]\n\n")) {
		return unexpected(strconv.Itoa(n)+" events and not the end", c.buf[max(0, len(c.buf)-300):])
	}
	return nil
}

// head is what a client must know of a response's head.
type head struct {
	status  int
	length  int // -1 = until the connection ends
	chunked bool
	keep    bool
}

func readHead(br *bufio.Reader) (head, error) {
	h := head{length: -1, keep: true}
	line, err := br.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return h, unexpected("status line", line)
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, unexpected("status line", line)
	}
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return h, nil
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
}

func (h *head) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 0 || n > 1<<30 {
			return unexpected("length", line)
		}
		h.length = n
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		h.chunked = bytes.EqualFold(value, []byte("chunked"))
	case bytes.EqualFold(name, []byte("Connection")):
		h.keep = !bytes.EqualFold(value, []byte("close"))
	}
	return nil
}

// readBody appends the body to buf.
func readBody(br *bufio.Reader, h head, buf []byte) ([]byte, error) {
	if h.chunked {
		return readChunks(br, buf)
	}
	if h.length < 0 {
		rest, err := io.ReadAll(br)
		return append(buf, rest...), err
	}
	return appendN(br, buf, h.length)
}

func readChunks(br *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return buf, err
		}
		n, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil || n < 0 {
			return buf, unexpected("length of a chunk", line)
		}
		if n > 0 {
			if buf, err = appendN(br, buf, int(n)); err != nil {
				return buf, err
			}
		}
		if _, err := br.Discard(2); err != nil { // the line end after a chunk; there are no trailers
			return buf, err
		}
		if n == 0 {
			return buf, nil
		}
	}
}

func appendN(br *bufio.Reader, buf []byte, n int) ([]byte, error) {
	at := len(buf)
	if cap(buf) < at+n {
		bigger := make([]byte, at, max(2*cap(buf), at+n, 4096))
		copy(bigger, buf)
		buf = bigger
	}
	buf = buf[:at+n]
	_, err := io.ReadFull(br, buf[at:])
	return buf, err
}
