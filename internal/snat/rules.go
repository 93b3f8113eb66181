package snat

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
	awsNATQuota        = 2 // Elastic IP addresses of a gateway, until a larger quota is asked for
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
func Rules() []Rule {
	const (
		read = "2026-11-22"
		lb   = "https://learn.microsoft.com/en-us/azure/load-balancer/load-balancer-outbound-connections"
		nat  = "https://learn.microsoft.com/en-us/azure/nat-gateway/nat-gateway-resource"
		aws  = "https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-basics.html"
		// AWS: the default quota is on the page of quotas, not on that of the gateway.
		quotas   = "https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html"
		regional = "https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateways-regional.html"
		gcp      = "https://cloud.google.com/nat/docs/ports-and-addresses"
		tune     = "https://cloud.google.com/nat/docs/tune-nat-configuration"
		app      = "https://learn.microsoft.com/en-us/troubleshoot/azure/app-service/troubleshoot-intermittent-outbound-connection-errors"
		api      = "https://cloud.google.com/compute/docs/reference/rest/v1/routers"
		sys      = "https://docs.kernel.org/networking/ip-sysctl.html"
		ct       = "https://docs.kernel.org/networking/nf_conntrack-sysctl.html"
	)
	var all []Rule
	add := func(vendor, basis, title, url string, rows ...Rule) {
		for _, r := range rows {
			r.Vendor, r.Basis, r.Date, r.Title, r.URL = vendor, basis, read, title, url
			all = append(all, r)
		}
	}
	row := func(rule string, value int64, unit string) Rule { return Rule{Rule: rule, Value: value, Unit: unit} }
	add("Azure Load Balancer", "documented", "Source Network Address Translation (SNAT) for outbound connections", lb,
		row("ports of a frontend address", azureLBPorts, "ports"),
		row("a rule's port takes the aligned block of", azureLBBlock, "ports"),
		row("default allocation, at most, per node", azureLBDefaultMax, "ports"),
		row("default allocation, largest pool", azureLBDefaultPool, "nodes"),
		row("idle time-out", azureLBIdle, "s"))
	add("Azure Load Balancer", "documented", "Intermittent outbound connection errors in Azure App Service (copy of 2020; the balancer's own page of 2022 has it no more)", app,
		row("release of a port after FIN", azureLBFIN, "s"),
		row("release of a port after RST", azureLBRST, "s"))
	for _, step := range defaultPorts() {
		add("Azure Load Balancer", "documented", "Source Network Address Translation (SNAT) for outbound connections", lb,
			row("default allocation per frontend address, pool up to "+Group(int64(step.nodes)), int64(step.ports), "ports"))
	}
	add("Azure NAT gateway", "documented", "Azure NAT Gateway resource", nat,
		row("ports of an address", azureNATPorts, "ports"),
		row("connections to one destination, per address", azureNATPerDest, "connections"),
		row("connections of a gateway", azureNATTotal, "connections"),
		row("addresses of a gateway", azureNATIPs, "addresses"),
		row("hold-down after FIN", azureNATFIN, "s"),
		row("hold-down after RST", azureNATRST, "s"),
		row("idle time-out; of UDP fixed", azureNATIdle, "s"),
		row("hold-down after the idle time-out of a UDP flow", azureNATUDP, "s"))
	add("AWS NAT gateway", "documented", "NAT gateway basics", aws,
		row("connections to one destination, per address", awsNATPorts, "connections"),
		row("addresses of a gateway", awsNATIPs, "addresses"),
		row("idle time-out", awsNATIdle, "s"))
	add("AWS NAT gateway", "documented", "Amazon VPC quotas", quotas,
		row("addresses of a public gateway by default; more by request", awsNATQuota, "addresses"))
	add("AWS regional NAT gateway", "documented", "Regional NAT gateways for automatic multi-AZ expansion", regional,
		row("addresses in one Availability Zone", awsRegionalIPs, "addresses"))
	add("AWS NAT gateway", "assumed", "hold-down is not published; set hold_fin and hold_rst", "",
		row("hold-down after FIN and RST", 0, "s"))
	add("GCP Cloud NAT", "documented", "IP addresses and ports", gcp,
		row("ports of an address", gcpNATPorts, "ports"),
		row("static allocation, minimum per VM by default; other values round up to a power of two", gcpNATMinStatic, "ports"),
		row("dynamic allocation, least minimum per VM", gcpNATMinDynamic, "ports"),
		row("dynamic allocation, largest maximum per VM", gcpNATMaxDynamic, "ports"))
	add("GCP Cloud NAT", "documented", "Tune NAT configuration", tune,
		row("hold-down in TIME_WAIT (new gateways since autumn 2026: 30)", gcpNATTimeWait, "s"))
	add("GCP Cloud NAT", "documented", "REST resource: routers", api,
		row("hold-down after RST, the transitory time-out", gcpNATTransitory, "s"),
		row("idle time-out, established", gcpNATIdle, "s"),
		row("idle time-out, UDP", gcpNATUDPIdle, "s"))
	add("Linux", "measured", "this repository's study on Linux 6.18", "",
		row("ephemeral range per source address and destination tuple", linuxEphemeral, "ports"),
		row("masquerade per address and destination tuple", linuxMasquerade, "ports"),
		row("conntrack entries", linuxConntrack, "entries"),
		row("kernel memory per socket", kernelBytes, "bytes"))
	add("Linux", "documented", "IP Sysctl", sys,
		row("TIME_WAIT of the side that closes first", linuxTimeWait, "s"),
		row("accept queue, net.core.somaxconn", linuxSomaxconn, "connections"))
	add("Linux", "documented", "Netfilter Conntrack Sysfs variables", ct,
		row("conntrack time-wait", conntrackTimeWait, "s"),
		row("conntrack after RST", conntrackClose, "s"),
		row("conntrack established", conntrackIdle, "s"),
		row("conntrack of a UDP flow with answers", conntrackUDP, "s"))
	add("Linux", "assumed", "usual limit of a container; see ulimit -n", "",
		row("descriptors of a process", linuxFiles, "files"))
	add("Azure virtual machine", "assumed", "second-hand reading of the virtual machine flow limits", "https://learn.microsoft.com/en-us/azure/virtual-network/virtual-machine-network-throughput",
		row("flows per direction", azureVMFlows, "flows"))
	return all
}
