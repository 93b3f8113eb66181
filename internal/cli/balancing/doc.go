// Package balancing is what the commands about load balancing share: the data paths by their names, what the admin API shows and
// changes of a control loop, and the flags of the rules around netfilter queues.
package balancing
