package handover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// errNoJournal means that a file is not a journal.
var errNoJournal error = &unreadableError{errors.New("not a journal of weir")}

const (
	fileMagic  = "weirkeep"
	fileHeader = 16
	version    = 1

	scanWindow = 4 * (frameHeader + MaxRecord)
	// maxGaps limits the cost of a file that was crafted to be slow: beyond it the rest counts as damaged.
	maxGaps = 1024
)

// appendFileHeader appends the beginning of a journal file: magic, version, zero.
func appendFileHeader(out []byte) []byte {
	out = append(out, fileMagic...)
	out = binary.LittleEndian.AppendUint32(out, version)
	return append(out, 0, 0, 0, 0)
}

// damage is what a scan could not read.
type damage struct {
	Frames uint64 // lost in the middle, by the sequence numbers
	Bytes  int64  // bytes that belong to no complete frame
	Torn   bool   // the last frame is truncated: a process ended in the middle of a write
}

// scan reads a journal and calls yield for every complete frame with the offset of its head. It returns the end of
// the last complete frame and what was lost. It skips damage up to the next complete frame.
func scan(r io.ReaderAt, size int64, yield func(f frame, offset int64)) (end int64, lost damage, err error) {
	head := make([]byte, fileHeader)
	if n, err := r.ReadAt(head, 0); n < fileHeader {
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, lost, err
		}
		return 0, lost, errNoJournal
	}
	if string(head[:8]) != fileMagic {
		return 0, lost, errNoJournal
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != version {
		return 0, lost, &unreadableError{fmt.Errorf("journal of version %d: this weir reads version %d", v, version)}
	}
	s := scanner{r: r, size: size, base: fileHeader, next: 1}
	return s.run(yield)
}

// scanner moves a window over the file.
type scanner struct {
	r      io.ReaderAt
	size   int64
	base   int64 // offset in the file of window[0]
	window []byte
	buffer []byte
	gaps   int
	next   uint64 // the next expected sequence number
	lost   damage
}

func (s *scanner) run(yield func(f frame, offset int64)) (end int64, lost damage, err error) {
	end = s.base
	for {
		f, ok, err := s.whole()
		if err != nil {
			return 0, s.lost, err
		}
		if ok {
			if f.sequence != s.next {
				if f.sequence < s.next { // older than the frame before: not a frame of this journal's sequence
					s.lost.Bytes += int64(frameHeader + len(f.body))
					s.advance(frameHeader + len(f.body))
					continue
				}
				s.lost.Frames += f.sequence - s.next
			}
			s.next = f.sequence + 1
			yield(f, s.base)
			s.advance(frameHeader + len(f.body))
			end = s.base
			continue
		}
		if s.base >= s.size {
			return end, s.lost, nil
		}
		if more, err := s.skip(); err != nil || !more {
			s.lost.Torn = s.lost.Frames == 0 && s.lost.Bytes == s.size-end
			return end, s.lost, err
		}
	}
}

// whole reads the frame at the beginning of the window, if it is complete.
func (s *scanner) whole() (f frame, ok bool, err error) {
	if err := s.fill(frameHeader); err != nil {
		return f, false, err
	}
	f, length, sum, ok := parseHead(s.window)
	if !ok {
		return f, false, nil
	}
	if err := s.fill(frameHeader + length); err != nil {
		return f, false, err
	}
	if len(s.window) < frameHeader+length {
		return f, false, nil
	}
	f.body = s.window[frameHeader : frameHeader+length]
	return f, crc32.Checksum(f.body, castagnoli()) == sum, nil
}

// skip moves to the next position at which a frame might begin.
func (s *scanner) skip() (more bool, err error) {
	s.gaps++
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	from := 1
	for s.gaps <= maxGaps {
		if err := s.fill(scanWindow); err != nil {
			return false, err
		}
		if at := bytes.Index(s.window[min(from, len(s.window)):], magic); at >= 0 {
			s.lost.Bytes += int64(from + at)
			s.advance(from + at)
			if _, _, _, ok := parseHead(s.window); ok || len(s.window) < frameHeader {
				return true, nil
			}
			from = 1
			continue
		}
		if int64(len(s.window)) >= s.size-s.base {
			break
		}
		n := len(s.window) - len(magic) + 1
		s.lost.Bytes += int64(n)
		s.advance(n)
		from = 0
	}
	s.lost.Bytes += s.size - s.base
	return false, nil
}

func (s *scanner) advance(n int) {
	s.base += int64(n)
	s.window = s.window[n:]
}

// fill extends the window to at least n bytes, or to the end of the file.
func (s *scanner) fill(n int) error {
	n = int(min(int64(n), max(s.size-s.base, 0)))
	if len(s.window) >= n {
		return nil
	}
	if s.buffer == nil {
		s.buffer = make([]byte, int(min(scanWindow, s.size)))
	}
	have := copy(s.buffer, s.window)
	got, err := s.r.ReadAt(s.buffer[have:min(int64(len(s.buffer)), s.size-s.base)], s.base+int64(have))
	s.window = s.buffer[:have+got]
	if len(s.window) >= n {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) { // shorter than expected: the file was truncated during the scan
		s.size = s.base + int64(len(s.window))
		return nil
	}
	return err
}
