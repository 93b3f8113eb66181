// Package readfile reads the files that an operator names (configuration, keys, certificates, tokens) so that none of them
// can block the process.
//
//   - What is not a regular file is refused before it is opened for reading: a FIFO, a device, a socket, a directory. [Once] also
//     takes a pipe, for commands that read one time: weir check <(generate).
//   - At most a given number of bytes is read.
//   - A file system that does not answer, such as NFS without its server, costs a read [Timeout] and no more: the goroutine that
//     hangs in the kernel is left behind. A [File] has at most MaxHanging of these; until one comes back, each further Read fails at once.
//
// [Replace] writes a file whole.
//
// Errors name the file and the remedy.
//
//	text, err := readfile.Read("/etc/weir/devices.psk", 64<<20)
package readfile
