# SPDX-License-Identifier: MIT
"""A Redis or Valkey server for tests, and what may stand in its place: a slow way to it, and one
that answers garbage. All on free ports of 127.0.0.1."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

PROGRAM = shutil.which('redis-server') or shutil.which('valkey-server')
START_SECONDS = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


class Redis:
    """with Redis('--maxmemory', '1mb') as redis: nothing of it is kept on the disk."""

    def __init__(self, *options, port=0):
        self.options = [str(option) for option in options]
        self.port = port or free_port()

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        self.start()
        return self

    def __exit__(self, *rest):
        self.kill()
        shutil.rmtree(self.folder)

    @property
    def address(self):
        return f'127.0.0.1:{self.port}'

    def start(self):
        self.process = subprocess.Popen(
            [PROGRAM, '--port', str(self.port), '--bind', '127.0.0.1', '--save', '',
             '--appendonly', 'no', '--dir', self.folder, *self.options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while not self.answers():
            assert time.monotonic() < until and self.process.poll() is None, 'no Redis server'
            time.sleep(0.02)

    def answers(self):
        try:
            return self.command('PING')[:1] in (b'+', b'-')
        except OSError:
            return False

    def command(self, line):
        """The beginning of what it answers to one line."""
        with socket.create_connection(('127.0.0.1', self.port), 5) as client:
            client.sendall(line.encode() + b'\r\n')
            return client.recv(4096)

    def kill(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class Listener:
    """A port where each connection gets a thread that runs serve(client)."""

    def __enter__(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        self.ended = False
        self.clients = []
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *rest):
        self.ended = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for client in self.clients:
            client.close()

    def accept(self):
        while not self.ended:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.clients.append(client)
            threading.Thread(target=self.run, args=(client,), daemon=True).start()

    def run(self, client):
        try:
            self.serve(client)
        except OSError:
            pass
        finally:
            client.close()


class SlowWay(Listener):
    """To a server and back, at so many bytes a second and with a delay each way."""

    def __init__(self, port, bytes_per_second, delay):
        self.port, self.rate, self.delay = port, bytes_per_second, delay

    def serve(self, client):
        server = socket.create_connection(('127.0.0.1', self.port))
        self.clients.append(server)
        threading.Thread(target=self.run_back, args=(server, client), daemon=True).start()
        self.copy(client, server)

    def run_back(self, server, client):
        try:
            self.copy(server, client)
        except OSError:
            pass

    def copy(self, source, target):
        while not self.ended:
            data = source.recv(4096)
            if not data:
                return
            time.sleep(self.delay + len(data) / self.rate)
            target.sendall(data)


class Garbage(Listener):
    """Answers whatever comes with bytes that mean nothing, or too much."""
    ANSWERS = (b'\x00\xff\xfe' * 100, b'$999999999999\r\n', b'*-7\r\n:1\r\n', b'+OK\r\n' * 50,
               os.urandom(3000), b'', b'$5\r\nab', b':99999999999999999999\r\n')

    def __init__(self):
        self.count = 0

    def serve(self, client):
        while client.recv(65536):
            self.count += 1
            answer = self.ANSWERS[self.count % len(self.ANSWERS)]
            if not answer:
                return
            client.sendall(answer)
