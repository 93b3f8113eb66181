package handover

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	frameMagic  = 0x6a726577 // "werj"
	frameHeader = 36

	kindPut    = 1
	kindDelete = 2
)

// frame is one entry of a journal. body aliases what was read.
type frame struct {
	kind     byte
	sequence uint64
	id       uint64
	body     []byte
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the library makes the table once

// appendFrame appends the wire form of f.
func appendFrame(out []byte, f frame) []byte {
	start := len(out)
	out = binary.LittleEndian.AppendUint32(out, frameMagic)
	out = append(out, f.kind, 0, 0, 0)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(f.body)))
	out = binary.LittleEndian.AppendUint64(out, f.sequence)
	out = binary.LittleEndian.AppendUint64(out, f.id)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(f.body, castagnoli()))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(out[start:], castagnoli()))
	return append(out, f.body...)
}

// parseHead reads a frame's head. It returns the frame without body, the body's length and its checksum.
func parseHead(b []byte) (f frame, length int, sum uint32, ok bool) {
	if len(b) < frameHeader || binary.LittleEndian.Uint32(b) != frameMagic ||
		binary.LittleEndian.Uint32(b[32:]) != crc32.Checksum(b[:32], castagnoli()) {
		return frame{}, 0, 0, false
	}
	f = frame{kind: b[4], sequence: binary.LittleEndian.Uint64(b[12:]), id: binary.LittleEndian.Uint64(b[20:])}
	size := binary.LittleEndian.Uint32(b[8:])
	if size > MaxRecord || f.kind != kindPut && f.kind != kindDelete || f.kind == kindDelete && size != 0 {
		return frame{}, 0, 0, false
	}
	return f, int(size), binary.LittleEndian.Uint32(b[28:]), true
}
