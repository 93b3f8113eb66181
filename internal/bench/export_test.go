package bench

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func bytesOf(v *unix.Iovec) []byte { return unsafe.Slice(v.Base, v.Len) }
