package snat

import "slices"

// What the plan calculates with. Each constant stands in Rules too, by the name rules.go gives it there.
const (
	azureLBPorts       = 64000 // SNAT ports of a frontend address
	azureLBBlock       = 8     // ports that a rule's port takes with it
	azureLBDefaultMax  = 1024  // default allocation gives a node no more
	azureLBDefaultPool = 1000  // largest pool of the default table
	azureLBIdle        = 240   // s
	azureLBFIN         = 240
	azureLBRST         = 15
	azureNATPorts      = 64512
	azureNATPerDest    = 50000
	azureNATTotal      = 2000000
	azureNATIPs        = 16
	azureNATFIN        = 65 // s
	azureNATRST        = 16
	azureNATIdle       = 240
	azureNATUDP        = 65
	awsNATPorts        = 55000
	awsNATIPs          = 8
	awsNATQuota        = 2 // Elastic IP addresses of a gateway, until a larger quota is requested
	awsRegionalIPs     = 32
	awsNATIdle         = 350
	gcpNATPorts        = 64512
	gcpNATMinStatic    = 64
	gcpNATMaxStatic    = 32768 // the largest power of two that an address has
	gcpNATMinDynamic   = 32
	gcpNATMaxDynamic   = 65536
	gcpNATTimeWait     = 120
	gcpNATIdle         = 1200
	gcpNATTransitory   = 30
	gcpNATUDPIdle      = 30
	linuxEphemeral     = 28232
	linuxMasquerade    = 64512
	linuxTimeWait      = 60
	linuxConntrack     = 262144
	conntrackTimeWait  = 120
	conntrackClose     = 10
	conntrackIdle      = 432000
	conntrackUDP       = 120 // of a flow with answers
	linuxFiles         = 1048576
	linuxSomaxconn     = 4096
	azureVMFlows       = 500000
	kernelBytes        = 3800 // per socket, one end
)

// poolStep is a row of the default allocation table of Azure Load Balancer.
type poolStep struct{ nodes, ports int }

// defaultPorts is that table: up to so many nodes, so many ports per frontend address.
func defaultPorts() []poolStep {
	return []poolStep{{50, 1024}, {100, 512}, {200, 256}, {400, 128}, {800, 64}, {1000, 32}}
}

// Rules returns the vendor table. The values are those the plan uses; a vendor may change them any day, which is why they
// carry the day they were read.
func Rules() []Rule { return slices.Concat(azureRules(), awsRules(), gcpRules(), hostRules()) }

// rulesRead is the day on which the vendors' pages were read.
const rulesRead = "2026-11-22"

func rule(name string, value int64, unit string) Rule {
	return Rule{Rule: name, Value: value, Unit: unit}
}

// rulesOf are rules of one vendor from one page. The basis says how they are known: documented, assumed or measured.
func rulesOf(vendor, basis, title, url string, rules ...Rule) []Rule {
	for i := range rules {
		r := &rules[i]
		r.Vendor, r.Basis, r.Date, r.Title, r.URL = vendor, basis, rulesRead, title, url
	}
	return rules
}

// azureRules are those of Azure Load Balancer and Azure NAT gateway.
func azureRules() []Rule {
	const (
		lb  = "https://learn.microsoft.com/en-us/azure/load-balancer/load-balancer-outbound-connections"
		nat = "https://learn.microsoft.com/en-us/azure/nat-gateway/nat-gateway-resource"
		app = "https://learn.microsoft.com/en-us/troubleshoot/azure/app-service/troubleshoot-intermittent-outbound-connection-errors"
	)
	steps := make([]Rule, 0, len(defaultPorts()))
	for _, step := range defaultPorts() {
		steps = append(steps, rule("default allocation per frontend address, pool up to "+Group(int64(step.nodes)), int64(step.ports), "ports"))
	}
	return slices.Concat(
		rulesOf("Azure Load Balancer", "documented", "Source Network Address Translation (SNAT) for outbound connections", lb,
			rule("ports of a frontend address", azureLBPorts, "ports"),
			rule("a rule's port takes the aligned block of", azureLBBlock, "ports"),
			rule("default allocation, at most, per node", azureLBDefaultMax, "ports"),
			rule("default allocation, largest pool", azureLBDefaultPool, "nodes"),
			rule("idle time-out", azureLBIdle, "s")),
		rulesOf("Azure Load Balancer", "documented", "Intermittent outbound connection errors in Azure App Service (copy of 2020; the balancer's own page of 2022 has it no more)", app,
			rule("release of a port after FIN", azureLBFIN, "s"),
			rule("release of a port after RST", azureLBRST, "s")),
		rulesOf("Azure Load Balancer", "documented", "Source Network Address Translation (SNAT) for outbound connections", lb, steps...),
		rulesOf("Azure NAT gateway", "documented", "Azure NAT Gateway resource", nat,
			rule("ports of an address", azureNATPorts, "ports"),
			rule("connections to one destination, per address", azureNATPerDest, "connections"),
			rule("connections of a gateway", azureNATTotal, "connections"),
			rule("addresses of a gateway", azureNATIPs, "addresses"),
			rule("hold-down after FIN", azureNATFIN, "s"),
			rule("hold-down after RST", azureNATRST, "s"),
			rule("idle time-out; of UDP fixed", azureNATIdle, "s"),
			rule("hold-down after the idle time-out of a UDP flow", azureNATUDP, "s")),
	)
}

// awsRules are those of the NAT gateways of AWS. The default quota is on the page of quotas, not on that of the gateway.
func awsRules() []Rule {
	const (
		aws      = "https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-basics.html"
		quotas   = "https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html"
		regional = "https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateways-regional.html"
	)
	return slices.Concat(
		rulesOf("AWS NAT gateway", "documented", "NAT gateway basics", aws,
			rule("connections to one destination, per address", awsNATPorts, "connections"),
			rule("addresses of a gateway", awsNATIPs, "addresses"),
			rule("idle time-out", awsNATIdle, "s")),
		rulesOf("AWS NAT gateway", "documented", "Amazon VPC quotas", quotas,
			rule("addresses of a public gateway by default; more by request", awsNATQuota, "addresses")),
		rulesOf("AWS regional NAT gateway", "documented", "Regional NAT gateways for automatic multi-AZ expansion", regional,
			rule("addresses in one Availability Zone", awsRegionalIPs, "addresses")),
		rulesOf("AWS NAT gateway", "assumed", "hold-down is not published; set hold_fin and hold_rst", "",
			rule("hold-down after FIN and RST", 0, "s")),
	)
}

// gcpRules are those of GCP Cloud NAT.
func gcpRules() []Rule {
	const (
		gcp  = "https://cloud.google.com/nat/docs/ports-and-addresses"
		tune = "https://cloud.google.com/nat/docs/tune-nat-configuration"
		api  = "https://cloud.google.com/compute/docs/reference/rest/v1/routers"
	)
	return slices.Concat(
		rulesOf("GCP Cloud NAT", "documented", "IP addresses and ports", gcp,
			rule("ports of an address", gcpNATPorts, "ports"),
			rule("static allocation, minimum per VM by default; other values round up to a power of two", gcpNATMinStatic, "ports"),
			rule("dynamic allocation, least minimum per VM", gcpNATMinDynamic, "ports"),
			rule("dynamic allocation, largest maximum per VM", gcpNATMaxDynamic, "ports")),
		rulesOf("GCP Cloud NAT", "documented", "Tune NAT configuration", tune,
			rule("hold-down in TIME_WAIT (new gateways since autumn 2026: 30)", gcpNATTimeWait, "s")),
		rulesOf("GCP Cloud NAT", "documented", "REST resource: routers", api,
			rule("hold-down after RST, the transitory time-out", gcpNATTransitory, "s"),
			rule("idle time-out, established", gcpNATIdle, "s"),
			rule("idle time-out, UDP", gcpNATUDPIdle, "s")),
	)
}

// hostRules are those of the machines that start the connections.
func hostRules() []Rule {
	const (
		sys = "https://docs.kernel.org/networking/ip-sysctl.html"
		ct  = "https://docs.kernel.org/networking/nf_conntrack-sysctl.html"
	)
	return slices.Concat(
		rulesOf("Linux", "measured", "this repository's study on Linux 6.18", "",
			rule("ephemeral range per source address and destination tuple", linuxEphemeral, "ports"),
			rule("masquerade per address and destination tuple", linuxMasquerade, "ports"),
			rule("conntrack entries", linuxConntrack, "entries"),
			rule("kernel memory per socket", kernelBytes, "bytes")),
		rulesOf("Linux", "documented", "IP Sysctl", sys,
			rule("TIME_WAIT of the side that closes first", linuxTimeWait, "s"),
			rule("accept queue, net.core.somaxconn", linuxSomaxconn, "connections")),
		rulesOf("Linux", "documented", "Netfilter Conntrack Sysfs variables", ct,
			rule("conntrack time-wait", conntrackTimeWait, "s"),
			rule("conntrack after RST", conntrackClose, "s"),
			rule("conntrack established", conntrackIdle, "s"),
			rule("conntrack of a UDP flow with answers", conntrackUDP, "s")),
		rulesOf("Linux", "assumed", "usual limit of a container; see ulimit -n", "",
			rule("descriptors of a process", linuxFiles, "files")),
		rulesOf("Azure virtual machine", "assumed", "second-hand reading of the virtual machine flow limits", "https://learn.microsoft.com/en-us/azure/virtual-network/virtual-machine-network-throughput",
			rule("flows per direction", azureVMFlows, "flows")),
	)
}
