package rules

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// runProgram runs one of iptables' programs and returns its output; the error contains its error message.
func runProgram(ctx context.Context, input, name string, args ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaint
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // an interrupt from the terminal must reach only us
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("%s is not installed; install the package iptables", name)
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil {
		text := strings.TrimSpace(complaint.String())
		if first, _, more := strings.Cut(text, "\n"); more {
			text = first
		}
		return "", fmt.Errorf("%s: %s (%w)", strings.Join(append([]string{name}, args...), " "), text, err)
	}
	if out.Len() > maxSaved {
		return "", fmt.Errorf("%s: more than %d bytes of rules", name, maxSaved)
	}
	return out.String(), nil
}

// save reads the rules of a family.
func save(ctx context.Context, family Family) (*saved, error) {
	text, err := runProgram(ctx, "", family.program()+"-save")
	if err != nil {
		return nil, err
	}
	s, err := parseSaved(text)
	if err != nil {
		return nil, fmt.Errorf("%s-save: %w", family.program(), err)
	}
	return s, nil
}

// restore applies lines to one table in one transaction.
func restore(ctx context.Context, at familyTable, lines []string) error {
	input := "*" + at.table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	// The transaction must not be stopped half-way, and it is short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := runProgram(ctx, input, at.family.program()+"-restore", "-w", "--noflush")
	return err
}

// madeTable in a jump's comment records that the table did not exist before us, so that Remove removes it too.
const madeTable = "new"

// chainState is the state of our chain, as start or end of a transaction.
type chainState struct {
	exists       bool
	rules, jumps []string
}

func stateOf(t *savedTable, name string) chainState {
	return chainState{exists: t.has(name), rules: t.of(name), jumps: t.jumpsTo(name)}
}

// transaction returns the lines of iptables-restore that change our chain from one state to another.
func transaction(name string, from, to chainState) []string {
	var lines []string
	if to.exists {
		lines = append(lines, ":"+name+" - [0:0]") // creates the chain if necessary, and empties it
		lines = append(lines, to.rules...)
	}
	if !slices.EqualFunc(from.jumps, to.jumps, sameRule) {
		for _, rule := range from.jumps {
			lines = append(lines, "-D "+strings.TrimPrefix(rule, "-A "))
		}
		for _, rule := range slices.Backward(to.jumps) { // each is inserted at the top, so the last one comes first
			from, rest, _ := strings.Cut(strings.TrimPrefix(rule, "-A "), " ")
			lines = append(lines, "-I "+from+" 1 "+rest)
		}
	}
	if from.exists && !to.exists {
		lines = append(lines, "-F "+name, "-X "+name)
	}
	return lines
}

// dropTable removes an empty table that we made. Only the nf_tables backend can do this. With the other backend, or if
// somebody has added something to the table, the table stays.
func dropTable(ctx context.Context, at familyTable) error {
	version, err := runProgram(ctx, "", at.family.program(), "-V")
	if err != nil || !strings.Contains(version, "nf_tables") {
		return err
	}
	text, err := runProgram(ctx, "", at.family.program(), "-w", "-t", at.table, "-S")
	if err != nil {
		return err
	}
	for _, line := range strings.Fields(strings.ReplaceAll(text, " ", "_")) {
		if !strings.HasPrefix(line, "-P_") || !strings.HasSuffix(line, "_ACCEPT") {
			return nil
		}
	}
	return deleteNFTable(at)
}

// deleteNFTable deletes a table of nf_tables with a batch of one message.
func deleteNFTable(at familyTable) error {
	family := byte(unix.NFPROTO_IPV4)
	if at.family == IPv6 {
		family = unix.NFPROTO_IPV6
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("netfilter socket: %w", err)
	}
	defer unix.Close(fd)
	name := append([]byte(at.table), 0)
	batch := slices.Concat(
		nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, 1, []byte{0, 0, 0, unix.NFNL_SUBSYS_NFTABLES}),
		nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 2,
			slices.Concat([]byte{family, 0, 0, 0}, nfAttribute(unix.NFTA_TABLE_NAME, name))),
		nfMessage(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, 3, []byte{0, 0, 0, unix.NFNL_SUBSYS_NFTABLES}),
	)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("delete table %s: %w", at.table, err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return fmt.Errorf("delete table %s: %w", at.table, err)
	}
	if n < 20 {
		return fmt.Errorf("delete table %s: %w", at.table, io.ErrUnexpectedEOF)
	}
	if code := int32(binary.NativeEndian.Uint32(reply[16:])); code != 0 {
		return fmt.Errorf("delete table %s: %w", at.table, unix.Errno(-code))
	}
	return nil
}
