package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/udpio"
)

// childEnv makes the test binary a server with the arena as descriptor 3 and as many sockets behind it.
const childEnv = "WEIR_ENGINE_TEST_SOCKETS"

// flightEnv says that the memory of what is under way follows the sockets.
const flightEnv = "WEIR_ENGINE_TEST_FLIGHT"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(childEnv)); err == nil {
		if err := child(n); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(sockets int) error {
	a, loss, err := arena.Open(keptConfig(64), os.NewFile(3, "arena"), nil)
	if err != nil || loss != (arena.Loss{}) {
		return fmt.Errorf("arena: %w, %+v", err, loss)
	}
	cfg := Config{
		Workers: sockets, CIDs: ByteOwnerCIDs(6, 1), MaxSessions: 64, Arena: a,
		NewHandler: func(*Worker) Handler { return new(mirror) }, PSK: func([]byte) ([]byte, bool) { return []byte("key"), true },
	}
	for i := range sockets {
		cfg.Sockets = append(cfg.Sockets, 4+i)
	}
	if os.Getenv(flightEnv) != "" {
		if cfg.InFlight, err = mapFlight(4+sockets, sockets); err != nil {
			return err
		}
	}
	e, err := Open(cfg)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return e.Run(context.Background())
}

// killed is a server process that is killed and started again.
type killed struct {
	t      *testing.T
	files  []*os.File
	flight *os.File // nil: what is under way ends with the process
	cmd    *exec.Cmd
}

func (k *killed) start() {
	k.t.Helper()
	k.cmd = exec.Command(os.Args[0])
	k.cmd.Env = append(os.Environ(), childEnv+"="+strconv.Itoa(len(k.files)-1))
	k.cmd.ExtraFiles = k.files
	if k.flight != nil {
		k.cmd.Env = append(k.cmd.Env, flightEnv+"=1")
		k.cmd.ExtraFiles = append(slices.Clip(k.files), k.flight)
	}
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "serving\n" {
		k.t.Fatalf("%q, %v", line, err)
	}
}

func (k *killed) kill() {
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
}

// audited is a client that keeps requests coming, and fails when the server uses a sequence number twice.
type audited struct {
	*client
	t        *testing.T
	seen     map[uint64]bool // epoch and sequence of the server's records; the keys are those of the one session
	answered [][]byte        // the newest records whose answers have come
}

// receive returns the number of the request that the next record answers.
func (a *audited) receive(wait time.Duration) (uint64, bool) {
	b := make([]byte, 2048)
	_ = a.conn.SetReadDeadline(time.Now().Add(wait))
	n, err := a.conn.Read(b)
	if err != nil || n < 13 {
		return 0, false
	}
	sequence := binary.BigEndian.Uint64(b[3:])
	if a.seen[sequence] {
		a.t.Errorf("epoch and sequence %x were used twice with the same key", sequence)
	}
	a.seen[sequence] = true
	text := a.open(b[:n])
	if len(text) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(text)), true
}

// load sends requests, one after the other, until stop is closed; each until it is answered.
func (a *audited) load(stop <-chan struct{}, answers *atomic.Int64) {
	for number := uint64(1); ; number++ {
		for done := false; !done; {
			select {
			case <-stop:
				return
			default:
			}
			record := a.seal(binary.BigEndian.AppendUint64(nil, number))
			_, _ = a.conn.Write(record)
			for {
				n, ok := a.receive(100 * time.Millisecond)
				if !ok {
					break
				}
				if done = n == number; done {
					a.answered = append(a.answered[max(0, len(a.answered)-30):], record)
					answers.Add(1)
					break
				}
			}
		}
	}
}

// A server is killed at random moments under load. It never uses a nonce twice, never handles a record twice, and loses no session.
func TestKilledServersUseNoNonceTwice(t *testing.T) {
	const sockets, clients, kills = 2, 12, 25
	memory, err := arena.New(keptConfig(64), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	group, err := udpio.Listen(udpio.Config{
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), Sockets: sockets, Drops: true, Steer: ByteOwnerCIDs(6, 1).Steering(sockets),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	server := &killed{t: t, files: []*os.File{memory.File()}}
	for i := range sockets {
		file := os.NewFile(uintptr(duplicate(t, group.Conn(i).FD())), "socket")
		defer file.Close()
		server.files = append(server.files, file)
	}
	server.start()
	defer func() { server.kill() }()

	k := &supervisor{t: t}
	e := &Engine{public: group} // for its address
	var all []*audited
	for i := range clients {
		c := k.connect(e, i%3 != 0)
		all = append(all, &audited{client: c, t: t, seen: map[uint64]bool{}})
	}
	stop, answers := make(chan struct{}), new(atomic.Int64)
	var running sync.WaitGroup
	for _, a := range all {
		running.Go(func() { a.load(stop, answers) })
	}
	random := rand.New(rand.NewPCG(16, 1))
	for range kills {
		for until := answers.Load() + int64(random.IntN(400)) + clients; answers.Load() < until && !t.Failed(); {
			time.Sleep(50 * time.Microsecond) // the next answer
		}
		server.kill()
		server.start()
	}
	for until := answers.Load() + 10*clients; answers.Load() < until; {
		time.Sleep(time.Millisecond)
	}
	close(stop)
	running.Wait()
	for i, a := range all {
		replay(t, i, a)
	}
	t.Logf("%d answers over %d kills", answers.Load(), kills)
}

// replay sends records that were answered again: none may be answered, in whatever process they were handled.
func replay(t *testing.T, i int, a *audited) {
	t.Helper()
	const last = 1 << 60
	for {
		if _, ok := a.receive(10 * time.Millisecond); !ok {
			break
		}
	}
	for _, record := range a.answered {
		_, _ = a.conn.Write(record)
	}
	for range 50 {
		_, _ = a.conn.Write(a.seal(binary.BigEndian.AppendUint64(nil, last)))
		if n, ok := a.receive(200 * time.Millisecond); ok && n != last {
			t.Errorf("client %d: request %d was handled twice", i, n)
		} else if ok {
			return
		}
	}
	t.Errorf("client %d: the session is lost", i)
}
