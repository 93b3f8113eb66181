// Command echo answers with its host name over UDP and TCP, as a Pod of tests.
package main

import (
	"log"
	"net"
	"os"
)

func main() {
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", ":5300")
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", ":9300")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				log.Fatal(err)
			}
			if _, err := c.Write([]byte(name)); err != nil {
				log.Print(err)
			}
			c.Close()
		}
	}()
	b := make([]byte, 2048)
	for {
		_, from, err := packets.ReadFrom(b)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := packets.WriteTo([]byte(name), from); err != nil {
			log.Print(err)
		}
	}
}
