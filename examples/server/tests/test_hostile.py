# SPDX-License-Identifier: MIT
"""Clients that mean no good, or HTTP that is none: the server answers 4xx or closes, lives on, and
holds nothing."""
import json
import socket
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from server import Server, texts

HEAD = b'POST /v1/completions HTTP/1.1\r\nHost: a\r\n'
BODY = b'{"prompt": "Once", "max_tokens": 3, "temperature": 0}'
MEGABYTE = 1 << 20


class Hostile(unittest.TestCase):
    TIMEOUT = 2

    @classmethod
    def setUpClass(cls):
        cls.server = Server('--threads', 1, '--connections', 24,
                            '--timeout', cls.TIMEOUT).__enter__()
        cls.expected = texts(cls.server.complete(prompt='Once', max_tokens=3, temperature=0))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        """The server still answers, and right."""
        answer = self.server.complete(prompt='Once', max_tokens=3, temperature=0)
        self.assertEqual(texts(answer), self.expected)
        self.server.wait_idle()

    def exchange(self, *parts, timeout=60):
        """Sends parts and reads until the server closes; b'' when it just closed."""
        with self.server.socket(timeout) as connection:
            got = b''
            try:
                for part in parts:
                    connection.sendall(part)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has closed already; what it said may still be there
            try:
                while more := connection.recv(65536):
                    got += more
            except ConnectionError:
                pass
            return got

    def refused(self, got, *statuses):
        """A 4xx, or a closed connection."""
        if got:
            self.assertRegex(got.split(b'\r\n')[0], rb'^HTTP/1\.[01] 4\d\d ')
            if statuses:
                self.assertIn(int(got.split(b' ')[1]), statuses)

    # ---- what is no HTTP

    def test_garbage(self):
        for bytes_sent in (b'\r\n' * 1000, b'\0' * 5000, bytes(range(256)) * 20, b'hello\r\n\r\n',
                           b'\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03', b'GET\r\n\r\n',
                           b'GET / HTTP/9.9\r\n\r\n', b'GET  HTTP/1.1\r\n\r\n',
                           b'POST /v1/completions\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'):
            got = self.exchange(bytes_sent)
            self.assertNotIn(b' 500 ', got[:20])

    def test_pipelined_garbage(self):
        request = HEAD + b'Content-Length: %d\r\n\r\n' % len(BODY) + BODY
        for garbage in (b'\0\xff garbage\r\n\r\n', b'GET', BODY, b'}' * 10000,
                        b'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{'):
            with self.server.socket() as connection:
                connection.sendall(request + garbage)
                self.assertTrue(connection.recv(65536).startswith(b'HTTP/1.1 200 '))

    def test_pipelined_requests_are_answered_in_order(self):
        request = HEAD + b'Content-Length: %d\r\n\r\n' % len(BODY) + BODY
        last = HEAD + b'Connection: close\r\nContent-Length: %d\r\n\r\n' % len(BODY) + BODY
        with self.server.socket() as connection:
            connection.sendall(3 * request + last)
            got = b''
            while more := connection.recv(65536):
                got += more
        self.assertEqual(got.count(b'HTTP/1.1 200 '), 4)

    def test_bad_lengths(self):
        for length in (b'-1', b'a', b'99999999999999999999999', b'1e3', b''):
            got = self.exchange(HEAD + b'Content-Length: ' + length + b'\r\n\r\n' + BODY)
            self.refused(got)

    def test_bad_chunks(self):
        for chunk in (b'zz\r\n', b'-5\r\nabc\r\n', b'fffffffffffffffff\r\na\r\n', b'5\r\nab',
                      b'5\r\nabcdefgh\r\n'):
            got = self.exchange(HEAD + b'Transfer-Encoding: chunked\r\n\r\n' + chunk)
            self.refused(got)

    def test_header_bombs(self):
        for bomb in (b'X-A: ' + b'a' * 100000 + b'\r\n', b'X-A: a\r\n' * 20000,
                     b'a' * 100000, b': a\r\n' * 100, b'X-Tenant: a\r\n' * 5000):
            got = self.exchange(HEAD + bomb + b'Content-Length: 2\r\n\r\n{}')
            self.refused(got)
        self.refused(self.exchange(b'GET /' + b'a' * 100000 + b' HTTP/1.1\r\n\r\n'))

    # ---- large bodies

    def test_10_megabytes(self):
        body = b'{"prompt": "' + b'a' * (10 * MEGABYTE) + b'"}'
        status, answer = self.server.post('/v1/completions', body)
        self.assertEqual(status, 413)
        self.assertEqual(answer['error']['type'], 'invalid_request_error')

    def test_10_megabytes_in_chunks(self):
        connection = self.server.connect()
        connection.request('POST', '/v1/completions', (b'x' * 65536 for _ in range(160)),
                           encode_chunked=True, headers={'Transfer-Encoding': 'chunked'})
        response = connection.getresponse()
        self.assertEqual(response.status, 413)
        self.assertIn(b'longer than', response.read())
        connection.close()

    def test_body_without_end(self):
        """Past some times the limit nobody listens any more."""
        with self.server.socket() as connection:
            with self.assertRaises(OSError):
                connection.sendall(HEAD + b'Transfer-Encoding: chunked\r\n\r\n')
                for _ in range(1000):
                    connection.sendall(b'10000\r\n' + b'x' * 65536 + b'\r\n')

    def test_large_body_that_asks_first(self):
        with self.server.socket() as connection:
            connection.sendall(HEAD + b'Expect: 100-continue\r\nContent-Length: 10000000\r\n\r\n')
            self.assertTrue(connection.recv(65536).startswith(b'HTTP/1.1 413 '))

    def test_deep_and_wide_bodies_take_bounded_time(self):
        began = time.monotonic()
        for body in (b'[' * (MEGABYTE - 1), b'{"a":' * 200000, b'"' + b'\\"' * 500000,
                     b'{"prompt": [' + b'1,' * 500000 + b'1]}', b'[[],' * 250000,
                     b'{' + b'"a":1,' * 170000 + b'"prompt":1}'):
            self.assertEqual(self.server.post('/v1/completions', body)[0], 400)
        self.assertLess(time.monotonic() - began, 60)

    # ---- slow clients

    def close_seconds(self, connection, trickle):
        """How long until the server closes while bytes trickle in."""
        began = time.monotonic()
        connection.settimeout(0.2)
        while time.monotonic() - began < 10 * self.TIMEOUT:
            try:
                connection.sendall(trickle)
                if connection.recv(1000) == b'':
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        connection.close()
        return time.monotonic() - began

    def test_headers_that_trickle(self):
        def trickle(start, more):
            connection = self.server.socket()
            connection.sendall(start)
            return self.close_seconds(connection, more)

        with ThreadPoolExecutor(3) as pool:
            for took in pool.map(trickle,
                                 (b'', HEAD, HEAD + b'Content-Length: 100000\r\n\r\n'),
                                 (b'a', b'X-A: a\r\n', b' ')):
                self.assertLess(took, 8 * self.TIMEOUT)

    def test_request_that_trickles_but_ends_is_answered(self):
        request = HEAD + b'Connection: close\r\nContent-Length: %d\r\n\r\n' % len(BODY) + BODY
        with self.server.socket() as connection:
            for at in range(0, len(request), 12):
                connection.sendall(request[at:at + 12])
                time.sleep(self.TIMEOUT * 12 / len(request))
            self.assertTrue(connection.recv(65536).startswith(b'HTTP/1.1 200 '))

    def test_idle_connections_up_to_the_limit(self):
        """Those that wait behind them are served when the idle ones' time is over."""
        idle = [self.server.socket() for _ in range(40)]
        began = time.monotonic()
        answer = self.server.complete(prompt='Once', max_tokens=3, temperature=0)
        self.assertEqual(texts(answer), self.expected)
        self.assertLess(time.monotonic() - began, 20 * self.TIMEOUT)
        for connection in idle:
            connection.close()

    def test_stream_is_not_cut_by_the_request_limit(self):
        events = list(self.server.stream(prompt='Once', max_tokens=900, n=4, temperature=1))
        self.assertTrue(any(event['choices'][0]['finish_reason'] for event in events))

    def test_many_requests_one_after_another_on_one_connection(self):
        connection = self.server.connect()
        until = time.monotonic() + 3 * self.TIMEOUT
        while time.monotonic() < until:
            connection.request('POST', '/v1/completions', json.dumps(
                {'prompt': 'Once', 'max_tokens': 1}))
            self.assertEqual(connection.getresponse().read()[:6], b'{"id":')
            time.sleep(self.TIMEOUT / 4)
        connection.close()


if __name__ == '__main__':
    unittest.main()
