#!/usr/bin/env python3
"""Sends an exact number of requests with keys, and checks that every one is answered. Standard library only.

trips.py PORT SALT COUNT    so many keys, one request after the other
trips.py PORT SALT storm    100 requests with one key, all at once
"""

import http.client
import sys
import threading

BODY = b'{"item":"book","quantity":1,"customer":"c-1042","note":"none"}'
STORM = 100


def send(connection, key):
    """Head and body in one piece: who answers a copy by hand does not wait for its body, and closes where that comes late."""
    connection.sock.sendall(b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\nIdempotency-Key: %s\r\n\r\n%s" % (len(BODY), key.encode(), BODY))
    answer = http.client.HTTPResponse(connection.sock, method="POST")
    answer.begin()
    answer.read()
    return answer.status


def connected(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.connect()
    return connection


def storm(port, key):
    """The connections are there before the first request is sent."""
    connections = [connected(port) for _ in range(STORM)]
    together, statuses = threading.Barrier(STORM), []

    def one(connection):
        together.wait()
        statuses.append(send(connection, key))

    threads = [threading.Thread(target=one, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def main():
    port, salt, count = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if count == "storm":
        statuses, wanted = storm(port, f"{salt}-storm"), {200, 409}
    else:
        connection = connected(port)
        statuses, wanted = [send(connection, f"{salt}-{n:012}") for n in range(int(count))], {200}
    # SET NX by hand has nothing to say to a copy that comes while the first still runs.
    if set(statuses) - wanted or 200 not in statuses:
        sys.exit(f"answers with {sorted(set(statuses))}")


if __name__ == "__main__":
    main()
