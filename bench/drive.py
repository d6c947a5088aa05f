#!/usr/bin/env python3
"""Starts a proxy, sends it an exact number of requests, checks every answer, and stops it. Standard library only.

Used under an instruction counter: the same number of requests of the same bytes each time, in the same order.
The service behind the proxy is in this process.

In the command, {upstream}, {listen} and {admin} become addresses on loopback.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time

ANSWER_BODY = b'{"order":"o-4711","status":"accepted","total":"19.90"}'
ANSWER = (b"HTTP/1.1 200 OK\r\nServer: drive\r\nDate: Sun, 29 Nov 2026 12:00:00 GMT\r\n"
          b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n"
          % len(ANSWER_BODY)) + ANSWER_BODY
BODY = b'{"item":"book","quantity":1,"customer":"c-1042","note":"none"}'
HEAD = b"POST /orders HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
GET = b"GET /orders HTTP/1.1\r\nHost: localhost:8080\r\n\r\n"

# What a request carries, and what the answer must say of it.
SHAPES = {
    "pass": (lambda n: b"", None),
    "post": (lambda n: b"", None),
    "fresh": (lambda n: b"Idempotency-Key: 5f3a9c1e-0001-4000-8000-%012d\r\n" % n, b"fresh"),
    "replay": (lambda n: b"Idempotency-Key: 5f3a9c1e-0001-4000-9000-000000000000\r\n", b"replayed"),
}


class Stream:
    """Messages with a Content-Length from a socket."""

    def __init__(self, sock):
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def message(self):
        """Head and body of the next message; None where the other side has ended."""
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if found:
                length = int(field(head, b"content-length") or 0)
                if len(rest) >= length:
                    self.buffer = rest[length:]
                    return head, rest[:length]
            more = self.sock.recv(65536)
            if not more:
                return None
            self.buffer += more


def field(head, name):
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return None


class Service:
    """The service behind the proxy: the same answer to everything, counted."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.count = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            sock, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(Stream(sock),), daemon=True).start()

    def serve(self, stream):
        try:
            while stream.message():
                self.count += 1
                stream.sock.sendall(ANSWER)
        except OSError:
            pass  # The proxy closed the connection.


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % probe.getsockname()[1]


def filled(text, where):
    for name, address in where.items():
        text = text.replace(name, address)
    return text


def connect(address, process, patience=60):
    host, port = address.split(":")
    for _ in range(patience * 20):
        if process.poll() is not None:
            sys.exit(f"the proxy ended by itself with {process.returncode}")
        try:
            return socket.create_connection((host, int(port)), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit(f"nobody listens on {address}")


def send(connections, shape, requests):
    """Sends to all connections, then reads from all, so that the proxy meets them together."""
    extra, status = SHAPES[shape]
    left = requests
    while left:
        batch = connections[:left]
        for stream in batch:
            left -= 1
            stream.sock.sendall(GET if shape == "pass" else HEAD + extra(left) + b"\r\n" + BODY)
        for stream in batch:
            answer = stream.message()
            if answer is None:
                sys.exit("the proxy closed a connection")
            head, body = answer
            if not head.startswith(b"HTTP/1.1 200 ") or body != ANSWER_BODY:
                sys.exit(f"a wrong answer: {head!r} {body!r}")
            if status and field(head, b"idempotency-status") != status:
                sys.exit(f"not {status!r}: {head!r}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--shape", choices=SHAPES, required=True)
    arguments.add_argument("--requests", type=int, required=True)
    arguments.add_argument("--connections", type=int, default=1)
    arguments.add_argument("--pid-file", help="where the command writes the process to stop; default: the command")
    arguments.add_argument("--fill", nargs=2, metavar=("FROM", "TO"), help="a file into which the addresses are put")
    arguments.add_argument("command", nargs=argparse.REMAINDER)
    options = arguments.parse_args()

    service = Service()
    where = {"{upstream}": service.address, "{listen}": free_address(), "{admin}": free_address()}
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    command = [filled(part, where) for part in command]
    if options.fill:
        with open(options.fill[0], encoding="utf-8") as source, open(options.fill[1], "w", encoding="utf-8") as target:
            target.write(filled(source.read(), where))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        connections = [Stream(connect(where["{listen}"], process)) for _ in range(options.connections)]
        if options.shape == "replay":
            # The first of the key runs; it is in every count, so that a difference of two counts leaves it out.
            connections[0].sock.sendall(HEAD + SHAPES["replay"][0](0) + b"\r\n" + BODY)
            connections[0].message()
        send(connections, options.shape, options.requests)
        effects = 1 if options.shape == "replay" else options.requests
        if service.count != effects:
            sys.exit(f"{service.count} effects instead of {effects}")
        for stream in connections:
            stream.sock.close()
    finally:
        pid = process.pid
        if options.pid_file and os.path.exists(options.pid_file):
            with open(options.pid_file, encoding="ascii") as file:
                pid = int(file.read())
        # Asked again each second: nginx without a master can miss a signal that comes just before it waits.
        for _ in range(60):
            if process.poll() is not None:
                break
            os.kill(pid, signal.SIGTERM)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        else:
            process.kill()
            sys.exit("the proxy did not stop on SIGTERM")


if __name__ == "__main__":
    main()
