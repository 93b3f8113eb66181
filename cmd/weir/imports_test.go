package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/weir-lb/weir/"

// may says what the non-test files of a package import: packages of ours and modules of others, by prefix.
type may struct {
	ours   string // below internal/, separated by spaces
	others string // besides the standard library; golang.org/x/sys and x/net are free to all but pure packages
	pure   bool   // no operating system, socket, clock, goroutine or log
}

// mayImport is section 3 of docs/ARCHITECTURE.md, row by row. A change here is a change there.
func mayImport() map[string]may {
	const pion = "github.com/pion/"
	const cobra = "github.com/spf13/cobra github.com/spf13/pflag"
	const kubernetes = "k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime sigs.k8s.io/gateway-api"
	return map[string]may{
		// public
		"../api/v1": {pure: true},
		"../client": {ours: "api/v1"},
		// 1 to 3, pure
		"addresstext":      {pure: true},
		"keyerror":         {pure: true},
		"metrics":          {pure: true},
		"steering/slab":    {pure: true},
		"steering/evict":   {pure: true, ours: "steering/slab"},
		"steering/heap":    {pure: true, ours: "steering/slab"},
		"steering/rate":    {pure: true},
		"steering/siphash": {pure: true},
		"steering/flow":    {pure: true, ours: "steering/evict steering/heap steering/siphash steering/slab"},
		"steering/maglev":  {pure: true},
		"steering/cid":     {pure: true, ours: "steering/siphash"},
		"snat":             {pure: true, ours: "api/v1 keyerror"},
		"testbed/pace":     {pure: true},
		"testbed/measure":  {pure: true, ours: "api/v1", others: "github.com/HdrHistogram/hdrhistogram-go"},
		"steering/packet":  {pure: true, ours: "steering/flow"},
		"steering/lb":      {pure: true, ours: "steering/flow steering/maglev steering/cid addresstext metrics"},
		"steering/steer":   {pure: true, ours: "steering/lb steering/packet steering/flow steering/cid steering/evict steering/rate steering/siphash"},
		"steering/replay":  {pure: true, ours: "api/v1 steering/flow steering/lb steering/packet steering/steer"},
		// 3, leaves
		"privilege":          {},
		"events":             {ours: "api/v1"},
		"control/history":    {pure: true, ours: "api/v1 metrics"},
		"readfile":           {},
		"metrics/exposition": {ours: "metrics", others: "github.com/prometheus/"},
		"control/config":     {ours: "readfile addresstext keyerror", others: "github.com/goccy/go-yaml"},
		"control/admin":      {ours: "api/v1 control/history steering/evict metrics metrics/exposition"},
		"testbed/netlab":     {others: "github.com/vishvananda/"},
		"testbed/procstat":   {},
		"testbed/scratch":    {},
		"finding":            {ours: "api/v1 terminal"},
		"sockets":            {},
		"terminal":           {others: "golang.org/x/term"},
		"testbed/plot":       {},
		"bench/fragsim":      {ours: "api/v1 steering/flow testbed/plot"},
		// 4
		"control":                    {ours: "api/v1 steering/lb steering/cid control/config control/health control/names control/owners control/tree metrics readfile"},
		"control/tree":               {ours: "control/config", others: "github.com/goccy/go-yaml"},
		"control/discovery":          {ours: "api/v1 readfile"},
		"control/health":             {ours: "steering/flow steering/lb steering/packet metrics", others: "github.com/vishvananda/netlink"},
		"control/names":              {ours: "api/v1"},
		"control/announce":           {ours: "api/v1 steering/lb metrics"},
		"control/announce/bgp":       {ours: "api/v1 control/announce readfile steering/lb", others: "github.com/osrg/gobgp/v4"},
		"control/announce/holder":    {ours: "api/v1 control/announce control/announce/neighbour control/announce/vrrp steering/lb", others: "github.com/vishvananda/"},
		"control/announce/neighbour": {pure: true},
		"control/announce/vrrp":      {pure: true},
		"control/announce/readiness": {ours: "control/announce/bgp control/announce/holder control/announce/vrrp finding sockets steering/lb", others: "github.com/vishvananda/"},
		"control/redundancy":         {ours: "api/v1 readfile steering/flow steering/lb"},
		"control/owners":             {ours: "api/v1 steering/lb readfile"},
		"control/nfqlb":              {ours: "steering/lb control control/config"},
		// 5
		"datapath/ebpf/attach":      {ours: "api/v1 datapath/ebpf/nexthop", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"datapath/ebpf/bpf":         {others: "github.com/cilium/ebpf"},
		"datapath/ebpf":             {ours: "api/v1 steering/lb steering/flow steering/cid steering/evict datapath/ebpf/attach datapath/ebpf/bpf datapath/ebpf/maps datapath/ebpf/nexthop datapath/ebpf/pins", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"datapath/ebpf/generator":   {ours: "steering/lb steering/cid datapath/ebpf/attach datapath/ebpf/bpf", others: "github.com/cilium/ebpf"},
		"datapath/ebpf/maps":        {ours: "steering/lb steering/flow datapath/ebpf/bpf datapath/ebpf/nexthop", others: "github.com/cilium/ebpf"},
		"datapath/ebpf/decap":       {ours: "api/v1 datapath/ebpf/nexthop", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"datapath/ebpf/pins":        {ours: "api/v1 steering/lb datapath/ebpf/attach datapath/ebpf/bpf datapath/ebpf/maps", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"datapath/ebpf/nexthop":     {others: "github.com/vishvananda/"},
		"datapath/doctor":           {ours: "api/v1 steering/lb datapath/nfqueue/rules finding sockets", others: "github.com/vishvananda/"},
		"datapath/fastpath":         {ours: "datapath/ebpf datapath/ebpf/attach datapath/nfqueue steering/cid steering/lb"},
		"datapath/nfqueue":          {ours: "metrics datapath/nfqueue/flowfile steering/evict steering/lb steering/flow steering/packet steering/steer workers"},
		"datapath/nfqueue/flowfile": {ours: "steering/flow steering/steer"},
		"datapath/nfqueue/rules":    {ours: "steering/lb", others: "github.com/vishvananda/"},
		"datapath/udpnat":           {ours: "api/v1 metrics datapath/kernelnat steering/lb steering/flow steering/steer steering/evict udpio workers"},
		"workers":                   {ours: "steering/slab"},
		"udpio":                     {},
		"coap/message":              {},
		"coap/stream":               {ours: "coap/message"},
		"coap/exchange":             {ours: "coap/message steering/heap"},
		"coap/resource":             {ours: "coap/message coap/exchange steering/evict steering/heap"},
		"dtls/record":               {ours: "steering/cid"},
		"dtls/handshake":            {ours: "steering/cid dtls/record"},
		"dtls/client":               {ours: "dtls/record dtls/handshake"},
		"tcpscale":                  {ours: "api/v1 metrics steering/rate testbed/measure testbed/procstat"},
		"tcpscale/limits":           {ours: "finding"},
		"tcpscale/stats":            {ours: "api/v1 metrics metrics/exposition tcpscale testbed/measure"},
		"tcpscale/scalebench":       {ours: "api/v1 tcpscale tcpscale/limits finding testbed/measure testbed/plot testbed/netlab testbed/procstat testbed/programs terminal"},
		// 6
		"dtls/arena":                  {ours: "dtls/record"},
		"dtls/engine":                 {ours: "metrics udpio dtls/arena dtls/record dtls/handshake steering/cid steering/evict steering/heap steering/rate steering/slab workers"},
		"dtls/credentials":            {ours: "dtls/handshake keyerror readfile"},
		"coap/stream/streamserver":    {ours: "metrics coap/message coap/stream steering/evict steering/heap udpio workers"},
		"coap/cluster":                {ours: "coap/cluster/link coap/cluster/membership coap/cluster/move coap/cluster/replica coap/cluster/store coap/cluster/store/embedded dtls/engine steering/cid keyerror readfile"},
		"coap/cluster/link":           {ours: "dtls/handshake dtls/record steering/rate"},
		"coap/cluster/membership":     {pure: true},
		"coap/cluster/move":           {pure: true},
		"coap/cluster/replica":        {pure: true},
		"coap/cluster/store":          {ours: "coap/cluster/replica kube/leases", others: "go.etcd.io/etcd/client/v3 go.uber.org/zap"},
		"coap/cluster/store/embedded": {ours: "coap/cluster/replica coap/cluster/store", others: "go.etcd.io/etcd/client/pkg/v3/transport go.etcd.io/etcd/server/v3 go.uber.org/zap"},
		"coap/oscore":                 {ours: "dtls/record coap/message coap/exchange control/config keyerror"},
		"coap/node":                   {ours: "api/v1 metrics dtls/arena dtls/engine dtls/handshake coap/message coap/exchange coap/resource coap/stream coap/stream/streamserver dtls/credentials coap/cluster coap/cluster/move steering/evict steering/heap readfile udpio coap/oscore keyerror"},
		"coap/client":                 {ours: "metrics udpio dtls/client dtls/record dtls/handshake coap/message coap/exchange coap/stream steering/cid steering/heap testbed/measure testbed/procstat api/v1", others: pion + "dtls github.com/fxamacker/cbor"},
		"coap/browse":                 {ours: "coap/client coap/message", others: "github.com/charmbracelet/bubbles/textarea github.com/charmbracelet/bubbles/viewport github.com/charmbracelet/bubbletea github.com/charmbracelet/lipgloss github.com/charmbracelet/x/ansi golang.org/x/term"},
		"coap/check":                  {ours: "api/v1 coap/client coap/message dtls/handshake dtls/record"},
		"turn/allocation":             {pure: true, ours: "steering/evict steering/heap steering/rate steering/slab", others: pion + "stun"},
		"turn/routes":                 {ours: "addresstext api/v1 control/names"},
		"handover":                    {},
		"turn/gateway":                {ours: "api/v1 keyerror metrics turn/allocation turn/routes steering/rate udpio readfile workers dtls/record dtls/handshake dtls/engine", others: pion + "stun"},
		"turn/requests":               {others: pion + "stun"},
		"datapath/kernelnat":          {ours: "datapath/ebpf/attach datapath/ebpf/bpf datapath/ebpf/maps datapath/ebpf/nexthop", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"turn/kernelrelay":            {ours: "datapath/ebpf/attach datapath/ebpf/bpf datapath/ebpf/maps datapath/ebpf/nexthop", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"turn/stunnerd":               {ours: "keyerror turn/gateway turn/routes"},
		"turn/authservice":            {},
		"turn/turncat":                {ours: "turn/requests udpio readfile workers dtls/record dtls/handshake dtls/client", others: pion + "stun " + pion + "turn " + pion + "logging"},
		"turn/load":                   {ours: "turn/requests udpio testbed/measure testbed/procstat testbed/pace dtls/record dtls/handshake dtls/client api/v1", others: pion + "stun"},
		"testbed/programs":            {ours: "testbed/netlab testbed/procstat testbed/scratch"},
		"bench":                       {ours: "api/v1 metrics steering/packet turn/requests udpio testbed/netlab testbed/measure testbed/pace testbed/procstat testbed/plot testbed/programs testbed/scratch kube/kubelab terminal", others: "github.com/cilium/ebpf k8s.io/api " + pion + "stun"},
		"bench/programcost":           {ours: "api/v1 datapath/ebpf datapath/ebpf/attach datapath/ebpf/bpf datapath/ebpf/generator datapath/ebpf/maps datapath/ebpf/nexthop steering/lb", others: "github.com/cilium/ebpf github.com/vishvananda/"},
		"bench/snatlab":               {ours: "api/v1 testbed/netlab snat testbed/plot testbed/programs tcpscale terminal"},
		"bench/demo":                  {ours: "api/v1 coap/client control/admin testbed/measure testbed/plot testbed/scratch terminal testbed/programs"},
		"bench/kubedemo":              {ours: "api/v1 coap/client kube/kubelab testbed/measure testbed/netlab testbed/plot testbed/programs testbed/scratch terminal turn/load", others: "k8s.io/api sigs.k8s.io/gateway-api"},
		"../web":                      {},
		"../docs/openapi":             {},
		"kube/discovery":              {ours: "api/v1", others: "github.com/gorilla/websocket"},
		"kube/kubelab":                {ours: "privilege testbed/netlab testbed/programs", others: "k8s.io/api sigs.k8s.io/yaml"},
		"kube/lookup":                 {ours: "kube/discovery", others: "github.com/gorilla/websocket k8s.io/api k8s.io/apimachinery k8s.io/client-go"},
		"kube/leases":                 {ours: "kube/pods", others: "k8s.io/api k8s.io/apimachinery k8s.io/client-go"},
		"kube/iperf":                  {ours: "kube/discovery", others: "k8s.io/api k8s.io/apimachinery k8s.io/client-go"},
		"kube/pods":                   {others: "k8s.io/api k8s.io/apimachinery k8s.io/client-go k8s.io/klog github.com/go-logr/logr"},
		"kube/turn":                   {pure: true, ours: "kube/turn/stunnerv1", others: "k8s.io/api k8s.io/apimachinery sigs.k8s.io/gateway-api"},
		"kube/turn/controller":        {ours: "kube/discovery kube/operator kube/turn kube/turn/stunnerv1 kube/world metrics turn/authservice turn/stunnerd", others: kubernetes},
		"kube/turn/stunnerv1":         {pure: true, others: "k8s.io/api k8s.io/apimachinery sigs.k8s.io/gateway-api"},
		"kube/world":                  {pure: true, others: kubernetes},
		"kube/conditions":             {pure: true, others: kubernetes},
		"kube/operator":               {ours: "api/v1 kube/world metrics", others: kubernetes + " k8s.io/client-go k8s.io/klog github.com/go-logr/logr"},
		"kube/l4":                     {pure: true, ours: "control/config kube/conditions kube/l4/policyv1alpha1 kube/operator kube/world steering/lb", others: kubernetes + " sigs.k8s.io/yaml"},
		"kube/l4/policyv1alpha1":      {pure: true, others: kubernetes},
		"kube/publish":                {ours: "api/v1 control/discovery kube/operator readfile"},
		// 7
		"cli/startup":   {},
		"cli":           {ours: "cli/startup api/v1 client control/admin events handover control/config keyerror privilege readfile terminal testbed/netlab testbed/programs testbed/scratch web docs/openapi", others: cobra},
		"cli/files":     {ours: "api/v1 cli control/config snat terminal turn/gateway turn/stunnerd"},
		"cli/balancing": {ours: "api/v1 client cli control control/admin control/config control/tree datapath/ebpf datapath/ebpf/attach datapath/nfqueue datapath/nfqueue/rules datapath/udpnat metrics steering/lb control/history", others: cobra},
		"cli/status":    {ours: "api/v1 cli client terminal", others: cobra},
		"cli/measuring": {ours: "cli bench privilege tcpscale terminal testbed/measure testbed/procstat", others: cobra},
		// 8
		"cli/bench":      {ours: "*", others: cobra},
		"cli/check":      {ours: "*", others: cobra},
		"cli/coap":       {ours: "*", others: cobra},
		"cli/demo":       {ours: "*", others: cobra},
		"cli/doctor":     {ours: "*", others: cobra},
		"cli/explain":    {ours: "*", others: cobra},
		"cli/initialize": {ours: "*", others: cobra},
		"cli/lab":        {ours: "*", others: cobra},
		"cli/lb":         {ours: "*", others: cobra},
		"cli/nat":        {ours: "*", others: cobra + " golang.org/x/term"},
		"cli/operator":   {ours: "*", others: cobra + " k8s.io/client-go"},
		"cli/sim":        {ours: "*", others: cobra},
		"cli/snat":       {ours: "*", others: cobra},
		"cli/tcp":        {ours: "*", others: cobra},
		"cli/turn":       {ours: "*", others: cobra},
		"../cmd/weir":    {ours: "*"},
		// the demonstration in Kubernetes
		"../cmd/kubedemo": {ours: "bench/kubedemo testbed/netlab testbed/procstat"},
		// scenarios in the binary
		"../examples/snat": {},
	}
}

// A package imports what section 3 of the architecture lets it, so that what must stay apart does.
func TestImportsFollowTheArchitecture(t *testing.T) {
	rows := mayImport()
	seen := map[string]bool{}
	eachFile(t, func(pkg, path string, file *ast.File, _ *token.FileSet) {
		seen[pkg] = true
		if isTestHelper(pkg) {
			return // a <package>test folder serves tests only, and nothing else may import it
		}
		row, ok := rows[pkg]
		if !ok {
			t.Errorf("%s: package internal/%s is not in the table: add it to section 3 of docs/ARCHITECTURE.md and here", path, pkg)
			return
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if reason := row.refuses(pkg, name); reason != "" {
				t.Errorf("%s imports %s: %s", path, name, reason)
			}
		}
	})
	for pkg := range rows {
		if !seen[pkg] {
			t.Errorf("there is no package internal/%s: take its row out of section 3 of docs/ARCHITECTURE.md and out of this table", pkg)
		}
	}
}

// floors is the order of dependencies, from the bottom up; a package belongs to the first floor that has a prefix of its path.
var floors = [][]string{
	{"../api", "api", "../client", "client", "testbed", "terminal", "finding", "sockets", "addresstext", "keyerror", "readfile", "privilege", "events", "metrics", "control/config", "control/history"},
	{"steering"},
	{"workers", "handover", "udpio"},
	{"datapath", "dtls"},
	{"control"},
	{"coap", "turn", "tcpscale", "snat", "kube"},
	{"bench", "../web", "../docs", "../examples"},
	{"cli"},
	{"../cmd"},
}

func floorOf(pkg string) int {
	for floor, prefixes := range floors {
		for _, prefix := range prefixes {
			if pkg == prefix || strings.HasPrefix(pkg, prefix+"/") {
				return floor
			}
		}
	}
	return -1
}

// The table of section 3 itself has no row that looks up, nor does a family of commands, whose row lets it import anything, nor a
// package for tests alone, which has no row.
func TestDependenciesPointDown(t *testing.T) {
	eachFile(t, func(pkg, path string, file *ast.File, _ *token.FileSet) {
		for _, spec := range file.Imports {
			ours, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module)
			if !ok {
				continue
			}
			if below, ok := strings.CutPrefix(ours, "internal/"); ok {
				ours = below
			} else {
				ours = "../" + ours
			}
			if floorOf(ours) < 0 || floorOf(ours) > floorOf(pkg) {
				t.Errorf("%s imports %s, which is on a higher floor or on none", path, ours)
			}
		}
	})
	for pkg, row := range mayImport() {
		if floorOf(pkg) < 0 {
			t.Errorf("%s is on no floor of section 3", pkg)
		}
		for _, ours := range strings.Fields(row.ours) {
			if ours != "*" && floorOf(ours) > floorOf(pkg) {
				t.Errorf("section 3 lets %s import %s, which is on a higher floor", pkg, ours)
			}
		}
	}
}

func (m may) refuses(pkg, name string) string {
	shared := []string{"cli/balancing", "cli/files", "cli/measuring", "cli/status"} // by several families
	if ours, ok := strings.CutPrefix(name, module); ok {
		ours = strings.TrimPrefix(ours, "internal/")
		switch {
		case ours == "cmd/weir":
			return "nothing imports the command"
		case isTestHelper(ours):
			return "a package for tests only"
		case strings.HasPrefix(pkg, "cli/") && strings.HasPrefix(ours, "cli/") && !slices.Contains(shared, ours):
			return "families of commands do not import each other"
		case m.ours == "*", ours == pkg, slices.Contains(strings.Fields(m.ours), ours):
			return ""
		}
		return "section 3 lets " + pkg + " import only: " + m.ours
	}
	first, _, _ := strings.Cut(name, "/")
	if strings.Contains(first, ".") {
		for _, allowed := range strings.Fields(m.others) {
			if strings.HasPrefix(name+"/", strings.TrimSuffix(allowed, "/")+"/") || strings.HasSuffix(allowed, "/") && strings.HasPrefix(name, allowed) {
				return ""
			}
		}
		if !m.pure && (strings.HasPrefix(name, "golang.org/x/sys/") || strings.HasPrefix(name, "golang.org/x/net/")) {
			return ""
		}
		return "a third-party module enters through the packages that section 3 names"
	}
	if m.pure && name != "net/netip" && slices.Contains([]string{"os", "net", "syscall", "log", "plugin", "runtime"}, first) {
		return "a pure package has no operating system, socket or log"
	}
	return ""
}

// Pure packages take the time as an argument and start nothing.
func TestPurePackagesHaveNoClockAndNoGoroutine(t *testing.T) {
	rows := mayImport()
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
	files := 0
	eachFile(t, func(pkg, path string, file *ast.File, set *token.FileSet) {
		if !rows[pkg].pure {
			return
		}
		files++
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.GoStmt:
				t.Errorf("%v: starts a goroutine", set.Position(node.Pos()))
			case *ast.SelectorExpr:
				if x, ok := node.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, node.Sel.Name) {
					t.Errorf("%v: reads the clock: time.%s", set.Position(node.Pos()), node.Sel.Name)
				}
			case *ast.FuncDecl:
				if node.Name.Name == "init" && node.Recv == nil {
					t.Errorf("%v: has an init function", set.Position(node.Pos()))
				}
			}
			return true
		})
	})
	if files < 5 {
		t.Errorf("only %d files of pure packages found: the walk proves nothing", files)
	}
}

// A package says in its comment what belongs in it.
func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	eachFile(t, func(pkg, _ string, file *ast.File, _ *token.FileSet) {
		documented[pkg] = documented[pkg] || file.Doc != nil
	})
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("internal/%s has no package comment: add doc.go", pkg)
		}
	}
}

// A function fits a screen.
func TestFunctionsAreShort(t *testing.T) {
	const maximum = 60 // lines
	eachFile(t, func(_, _ string, file *ast.File, set *token.FileSet) {
		if ast.IsGenerated(file) {
			return
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				from, to := set.Position(f.Pos()), set.Position(f.End())
				if lines := to.Line - from.Line + 1; lines > maximum {
					t.Errorf("%v: %s has %d lines, the limit is %d: split it", from, f.Name.Name, lines, maximum)
				}
			}
		}
	})
}

func isTestHelper(pkg string) bool {
	parent, base := filepath.Split(pkg)
	return base != "" && strings.HasSuffix(base, "test") && base == filepath.Base(parent)+"test"
}

// eachFile parses every Go file of the module that is not a test, for every platform, and names its package by the
// path below internal/.
func eachFile(t *testing.T, visit func(pkg, path string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		visit(f.pkg, f.path, f.file, f.set)
	}
}

type parsedFile struct {
	pkg, path string
	file      *ast.File
	set       *token.FileSet
}

// parsed are all files, which several tests visit.
var parsed = sync.OnceValues(func() (files []parsedFile, err error) {
	root := filepath.Join("..", "..")
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != root && err == nil { // a module of its own
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg, err := filepath.Rel(filepath.Join(root, "internal"), filepath.Dir(path))
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, parsedFile{filepath.ToSlash(pkg), path, file, set})
		return nil
	})
	return files, err
})
