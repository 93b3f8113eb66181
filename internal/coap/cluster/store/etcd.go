package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
)

// EtcdConfig is what OpenEtcd needs.
type EtcdConfig struct {
	Endpoints          []string // http://HOST:PORT or https://HOST:PORT; an address alone is http, or https with TLS
	Prefix             string   // of the keys, one for each cluster
	TLS                *tls.Config
	Username, Password string
}

// Etcd is a cluster of etcd. The term of an entry is the revision of its last change (ModRevision), which counts over
// all keys of the cluster.
type Etcd struct {
	client *clientv3.Client
	prefix string
}

const (
	dialTimeout = 2 * time.Second
	keepAlive   = 2 * time.Second // a connection that answers no ping for so long is replaced: a node must not wait for the kernel to give it up
)

// OpenEtcd prepares the connection, and returns at once: whether a server is there is learned from the calls.
func OpenEtcd(cfg EtcdConfig) (*Etcd, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoint")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Username: cfg.Username, Password: cfg.Password, DialTimeout: dialTimeout,
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive, Logger: zap.NewNop(), RejectOldCluster: false,
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return OnEtcd(client, cfg.Prefix), nil
}

// OnEtcd is the store behind a client, which Close ends.
func OnEtcd(client *clientv3.Client, prefix string) *Etcd {
	return &Etcd{client: client, prefix: strings.TrimSuffix(prefix, "/") + "/"}
}

// Close ends the connection.
func (s *Etcd) Close() error { return s.client.Close() }

// Change implements the store: one transaction, which the client library does not repeat once it may have been executed.
func (s *Etcd) Change(ctx context.Context, c replica.Change) (replica.Entry, error) {
	key := s.prefix + name(c.Owner)
	got, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(c.Term))).
		Then(clientv3.OpPut(key, string(encode(&c)))).
		Else(clientv3.OpGet(key)).
		Commit()
	switch {
	case err != nil:
		return replica.Entry{}, fmt.Errorf("etcd: change the entry of process %s: %w", c.Owner, err)
	case got.Succeeded:
		return replica.Entry{Owner: c.Owner, Term: uint64(got.Header.Revision), Buddy: c.Buddy, Taken: c.Taken, By: c.By}, nil
	}
	found := got.Responses[0].GetResponseRange().GetKvs()
	if len(found) == 0 {
		return gone(c.Owner, uint64(got.Header.Revision)), nil
	}
	return decode(c.Owner, uint64(found[0].ModRevision), found[0].Value)
}

// Delete implements the store.
func (s *Etcd) Delete(ctx context.Context, owner replica.Process, term uint64) error {
	key := s.prefix + name(owner)
	_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(term))).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("etcd: delete the entry of process %s: %w", owner, err)
	}
	return nil
}

// Follow implements the store. It returns when the context ends or the connection is lost for good: call it again.
func (s *Etcd) Follow(ctx context.Context, entry func(replica.Entry)) error {
	all, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("etcd: read the entries under %s: %w", s.prefix, err)
	}
	for _, kv := range all.Kvs {
		if err := s.pass(string(kv.Key), uint64(kv.ModRevision), kv.Value, entry); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range s.client.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(all.Header.Revision+1)) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("etcd: follow the entries under %s: %w", s.prefix, err)
		}
		for _, event := range response.Events {
			owner, ok := parseName(strings.TrimPrefix(string(event.Kv.Key), s.prefix))
			if event.Type == clientv3.EventTypeDelete {
				if ok {
					entry(gone(owner, uint64(event.Kv.ModRevision)))
				}
				continue
			}
			if err := s.pass(string(event.Kv.Key), uint64(event.Kv.ModRevision), event.Kv.Value, entry); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("etcd: the watch has ended")
}

// pass reads an entry. Keys under the prefix that are none of ours are passed over.
func (s *Etcd) pass(key string, term uint64, text []byte, entry func(replica.Entry)) error {
	owner, ok := parseName(strings.TrimPrefix(key, s.prefix))
	if !ok {
		return nil
	}
	e, err := decode(owner, term, text)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	entry(e)
	return nil
}
