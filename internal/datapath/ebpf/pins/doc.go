// Package pins is what outlives a process of the kernel data path: a directory of a bpf file system that keeps tables and links
// alive, and a Store in maps with them, of what user space must know to go on.
//
//	Dir    PATH/maps/NAME and PATH/links/HOOK-INTERFACE, locked by the process that serves it
//	Store  the journal of both generations (who has which number), counts of what is gone, and what was changed on the machine
//	Kept   what Find takes over of an earlier run: tables of the same layout, which ABI says by a hash
//	Stop   ends what a directory keeps, and takes back what was changed on the machine
//
// Names, layouts and meaning of what is pinned are an interface between two builds: a change of meaning that the hash cannot see
// needs another number in the constant meaning.
package pins
