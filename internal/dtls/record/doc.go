// Package record is the DTLS 1.2 record layer (RFC 6347 section 4.1) with
// connection ids (RFC 9146), for servers and clients alike.
//
// It hides how records are found in a datagram, which of them are too old,
// seen before or forged, and how AES-CCM (RFC 6655), AES-CCM_8 and AES-GCM
// (RFC 5288) protect them in place:
//
//	type 1 | version 2 | epoch 2 | sequence 6 | [cid n] | length 2 | explicit nonce 8 | ciphertext | tag
//
// An Association holds the keys, counters and replay window of one peer's
// epoch 1. It is not safe for concurrent use: whoever owns the session owns
// it. Nothing here allocates per record; a Scratch, one for each goroutine,
// holds the working blocks.
//
//	for rest := datagram; len(rest) > 0; {
//		var r record.Record
//		if rest, err = record.Next(rest, cidLength, &r); err != nil {
//			break
//		}
//		typ, payload, verdict := association.Open(&scratch, &r)
//		...
//	}
//
// Limits: epoch 0 in clear and epoch 1 only (no renegotiation), no
// compression, records of at most 2^14 bytes of plaintext.
package record
