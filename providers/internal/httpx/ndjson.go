package httpx

import (
	"bufio"
	"bytes"
	"io"
)

const (
	// lineRoom is the room that a stream of lines begins with; longer lines
	// double it.
	lineRoom = 4 << 10
	// maxEmptyReads is how many reads in a row may bring nothing.
	maxEmptyReads = 100
)

// byteOrderMark may stand before the first line of a text in UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// lines reads a stream of one JSON text a line (application/x-ndjson) and hands
// on each that is not blank, without its end and the space around it. Lines end
// with LF or CRLF; the last one needs no end. Whether a line is JSON is for each
// to see. One above MaxEvent bytes is bufio.ErrTooLong.
//
// Each byte is looked at once, however small the reads are; bufio.Scanner looks
// through an unfinished line from its beginning at every read.
func lines(body io.Reader, each Each) error {
	l := lineReader{buf: make([]byte, 0, lineRoom), first: true}
	for {
		err := l.fill(body)
		if fault := l.whole(each, err != nil); fault != nil {
			return fault
		}
		switch {
		case err == io.EOF: //nolint:errorlint // io.Reader's contract
			return line(l.buf, each)
		case err != nil:
			return err
		}
	}
}

// lineReader is what has been read of a line that has no end yet.
type lineReader struct {
	buf   []byte
	seen  int  // how much of buf has been looked through for a line's end
	first bool // nothing has been handed on: a byte order mark may stand here
}

// fill reads once more, with what ended the body beside the last bytes.
func (l *lineReader) fill(body io.Reader) error {
	if len(l.buf) == cap(l.buf) {
		room := min(2*cap(l.buf), MaxEvent+lineRoom)
		l.buf = append(make([]byte, 0, room), l.buf...)
	}
	for range maxEmptyReads {
		n, err := body.Read(l.buf[len(l.buf):cap(l.buf)])
		if l.buf = l.buf[:len(l.buf)+n]; n > 0 || err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// whole hands on the lines that have their end, and keeps the rest.
func (l *lineReader) whole(each Each, last bool) error {
	if l.first && len(l.buf) < len(byteOrderMark) && !last {
		return nil
	}
	rest := l.buf
	if l.first {
		l.first, rest = false, bytes.TrimPrefix(rest, byteOrderMark)
	}
	for {
		end := bytes.IndexByte(rest[l.seen:], '\n')
		if end < 0 {
			break
		}
		end += l.seen
		if err := line(rest[:end], each); err != nil {
			return err
		}
		rest, l.seen = rest[end+1:], 0
	}
	l.buf = l.buf[:copy(l.buf, rest)]
	if l.seen = len(l.buf); l.seen > MaxEvent {
		return bufio.ErrTooLong
	}
	return nil
}

func line(b []byte, each Each) error {
	if b = bytes.TrimSpace(b); len(b) > MaxEvent {
		return bufio.ErrTooLong
	}
	if len(b) == 0 {
		return nil
	}
	return each("", b)
}
