package handover

import (
	"errors"
	"fmt"
	"os"
)

// span is the position of the frame of a live record.
type span struct {
	offset int64
	length int // of the whole frame
}

// journal is an append-only file of records by id. Its owner holds a lock.
type journal struct {
	file *os.File
	// fresh creates the file that a compaction fills; install replaces the old file by it.
	fresh   func() (*os.File, error)
	install func(*os.File) error

	live      map[uint64]span
	liveBytes int64
	end       int64
	sequence  uint64 // of the next frame
	notBefore int64  // no compaction before the file has this length, because the last one failed
	scratch   []byte
	failing   bool // the last change was not written; this is logged once

	maxRecords int
	maxBytes   int64
	stats      JournalStats
}

// JournalStats counts what a journal did and what failed.
type JournalStats struct {
	Records     int    `json:"records" metric:"weir_turn_kept_records" help:"Records of session state in the journal."` // without the serving part's own records
	Bytes       int64  `json:"bytes" metric:"_bytes" help:"Size of the journal."`                                       // size of the file
	Compactions uint64 `json:"compactions"`
	Refused     uint64 `json:"refused" metric:"_refused_total" help:"Records beyond the bounds of the journal: their sessions do not outlive the process."` // records beyond a limit: their sessions do not survive the process
	Failed      uint64 `json:"failed" metric:"_failed_total" help:"Writes of the journal that the system refused."`                                         // writes that failed
	LostFrames  uint64 `json:"lost_frames"`
	LostBytes   int64  `json:"lost_bytes"`
}

// openJournal reads the journal in file, which may be empty.
func openJournal(file *os.File) (*journal, damage, error) {
	j := &journal{file: file, live: map[uint64]span{}, sequence: 1, maxRecords: MaxRecords, maxBytes: MaxBytes}
	info, err := file.Stat()
	if err != nil {
		return nil, damage{}, err
	}
	if info.Size() == 0 {
		return j, damage{}, j.begin()
	}
	if info.Size() > 4*MaxBytes {
		return nil, damage{}, &unreadableError{fmt.Errorf("%d bytes: a journal has at most %d", info.Size(), int64(4*MaxBytes))}
	}
	end, lost, err := scan(file, info.Size(), j.replay)
	if err != nil {
		return nil, lost, err
	}
	j.end = end
	j.stats.LostFrames, j.stats.LostBytes = lost.Frames, lost.Bytes
	if end < info.Size() { // a truncated frame here would later look like damage in the middle
		err = file.Truncate(end)
	}
	return j, lost, err
}

func (j *journal) begin() error {
	n, err := j.file.WriteAt(appendFileHeader(nil), 0)
	j.end = int64(n)
	if err != nil {
		_ = j.file.Truncate(0) // a file with half a header would not be a journal
	}
	return err
}

func (j *journal) replay(f frame, offset int64) {
	j.sequence = f.sequence + 1
	j.forget(f.id)
	if f.kind == kindPut && len(j.live) < j.maxRecords {
		j.remember(f.id, span{offset, frameHeader + len(f.body)})
	}
}

func (j *journal) forget(id uint64) {
	j.liveBytes -= int64(j.live[id].length)
	delete(j.live, id)
}

func (j *journal) remember(id uint64, s span) {
	j.live[id] = s
	j.liveBytes += int64(s.length)
}

var errBound = errors.New("the journal is full")

// put writes a record. After an error the earlier record of that id stays.
func (j *journal) put(id uint64, record []byte) error {
	old, known := j.live[id]
	length := frameHeader + len(record)
	if len(record) > MaxRecord || !known && len(j.live) >= j.maxRecords || j.liveBytes-int64(old.length)+int64(length) > j.maxBytes || j.end > 4*j.maxBytes {
		j.stats.Refused++
		return errBound
	}
	offset := j.end
	if err := j.write(frame{kind: kindPut, id: id, body: record}); err != nil {
		return err
	}
	j.forget(id)
	j.remember(id, span{offset, length})
	return j.compactIfDue()
}

func (j *journal) delete(id uint64) error {
	if _, known := j.live[id]; !known {
		return nil
	}
	if err := j.write(frame{kind: kindDelete, id: id}); err != nil {
		return err
	}
	j.forget(id)
	return j.compactIfDue()
}

// write appends one frame. The next frame overwrites the rest of a failed write.
func (j *journal) write(f frame) error {
	f.sequence = j.sequence
	j.scratch = appendFrame(j.scratch[:0], f)
	if _, err := j.file.WriteAt(j.scratch, j.end); err != nil {
		j.stats.Failed++
		return err
	}
	j.end += int64(len(j.scratch))
	j.sequence++
	return nil
}

// each calls yield for the live records in no particular order. record is valid until yield returns.
func (j *journal) each(yield func(id uint64, record []byte) bool) error {
	var buffer []byte
	for id, s := range j.live {
		if cap(buffer) < s.length {
			buffer = make([]byte, s.length)
		}
		b := buffer[:s.length]
		if _, err := j.file.ReadAt(b, s.offset); err != nil {
			return fmt.Errorf("read record %d: %w", id, err)
		}
		if !yield(id, b[frameHeader:]) {
			return nil
		}
	}
	return nil
}

// slack is how many bytes of dead frames a journal may have in addition to twice its live ones.
const slack = 1 << 20

func (j *journal) compactIfDue() error {
	if j.end <= max(2*j.liveBytes+slack, j.notBefore) {
		return nil
	}
	err := j.compact()
	if err != nil {
		j.stats.Failed++
		j.notBefore = j.end + slack
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// compact copies the live records to a new file. The old file stays in use until the new one is complete, and after a
// failure.
func (j *journal) compact() error {
	file, err := j.fresh()
	if err != nil {
		return err
	}
	next := &journal{file: file, live: make(map[uint64]span, len(j.live)), sequence: 1}
	if err = j.copyTo(next); err == nil {
		err = j.install(file)
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	_ = j.file.Close()
	j.file, j.live, j.liveBytes, j.end, j.sequence = file, next.live, next.liveBytes, next.end, next.sequence
	j.stats.Compactions++
	return nil
}

// copyTo writes the live records to next, some hundred kilobytes per system call.
func (j *journal) copyTo(next *journal) error {
	const chunk = 256 << 10
	out := appendFileHeader(nil)
	flush := func() error {
		n, err := next.file.WriteAt(out, next.end)
		next.end += int64(n)
		out = out[:0]
		return err
	}
	var failed error
	err := j.each(func(id uint64, record []byte) bool {
		next.remember(id, span{next.end + int64(len(out)), frameHeader + len(record)})
		out = appendFrame(out, frame{kind: kindPut, sequence: next.sequence, id: id, body: record})
		next.sequence++
		if len(out) >= chunk {
			failed = flush()
		}
		return failed == nil
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	return flush()
}

func (j *journal) snapshot() JournalStats {
	s := j.stats
	s.Records, s.Bytes = len(j.live), j.end
	for id := range j.live {
		if id == 0 || id >= ownID {
			s.Records--
		}
	}
	return s
}
