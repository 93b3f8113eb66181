package doctor

import (
	"context"

	"github.com/weir-lb/weir/internal/control/announce/readiness"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// announceFindings are about the announcements of a configuration.
func announceFindings(ctx context.Context, snapshot *lb.Snapshot) ([]finding.Finding, error) {
	if snapshot == nil || snapshot.Announce == nil {
		return nil, nil
	}
	return readiness.Examine(ctx, readiness.Config{Announce: snapshot.Announce, Privilege: privilege.Check(privilege.LBRunVRRP)})
}
