# SPDX-License-Identifier: MIT
"""Clients that leave: their requests end, their blocks come back, and others notice nothing."""
import json
import socket
import struct
import threading
import time
import unittest

from server import IDLE_SECONDS, Server, events, texts

PROMPT = 'Once upon a time there was a little girl who lived near the forest. '


class Clients(unittest.TestCase):
    """What two classes of tests below begin with."""
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server('--threads', 1, '--max-batch', 2, *cls.options).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        self.before = self.server.wait_idle()

    def ask(self, **fields):
        """A connection whose request has been sent."""
        body = json.dumps({'prompt': PROMPT, 'max_tokens': 800, 'temperature': 0, **fields})
        connection = self.server.socket()
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s'
                           % (len(body), body.encode()))
        return connection

    def wait_for(self, name, value):
        until = time.monotonic() + IDLE_SECONDS
        while self.server.status()[name] != value:
            self.assertLess(time.monotonic(), until, f'{name} is not {value}')
            time.sleep(0.01)

    def check(self, num_cancelled):
        after = self.server.wait_idle()
        self.assertEqual(after['cancelled'] - self.before['cancelled'], num_cancelled)
        self.assertEqual(after['failed'], self.before['failed'])
        generated = after['generated'] - self.before['generated']
        self.assertLessEqual(generated, 700 * num_cancelled)


class Disconnect(Clients):
    def test_before_the_body_is_there(self):
        connection = self.server.socket()
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{')
        connection.close()
        self.check(0)

    def test_others_get_their_answers(self):
        fields = {'prompt': PROMPT, 'max_tokens': 150, 'seed': 5}
        expected = texts(self.server.complete(**fields))
        got = []
        thread = threading.Thread(target=lambda: got.append(self.server.complete(**fields)))
        thread.start()
        for _ in range(8):
            connection = self.ask(stream=True, prompt=PROMPT * 2)
            connection.recv(10)
            connection.close()
        thread.join()
        self.assertEqual(texts(got[0]), expected)
        self.server.wait_idle()

    def test_client_that_reads_nothing(self):
        """Its tokens are kept for it: the engine waits for nobody."""
        connection = self.ask(stream=True, max_tokens=300, n=2, logprobs=20)
        self.wait_for('done', self.before['done'] + 1)
        reader = connection.makefile('rb')
        self.assertIn('[DONE]', events(reader))
        reader.close()
        connection.close()
        self.server.wait_idle()

    def test_counters_add_up(self):
        status = self.server.wait_idle()
        self.assertEqual(self.server.metric('server_requests_cancelled_total'),
                         status['cancelled'])
        self.assertEqual(self.server.metric('server_requests_done_total'), status['done'])
        self.assertEqual(self.server.metric('server_generated_tokens_total'), status['generated'])


class Observed(Clients):
    """Clients that leave while their request runs: the steps are slow, so that it does."""
    options = ('--drafts', 0, '--pause-ms', 20)

    def test_stream_that_is_cut(self):
        connection = self.ask(stream=True)
        reader = connection.makefile('rb')
        for number, _ in enumerate(events(reader)):
            if number == 5:
                break
        reader.close()
        connection.close()
        self.check(1)

    def test_stream_that_is_reset(self):
        connection = self.ask(stream=True)
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        connection.close()
        self.check(1)

    def test_whole_answer_that_is_not_waited_for(self):
        connection = self.ask()
        self.wait_for('running', 1)
        connection.close()
        self.check(1)

    def test_request_that_waits(self):
        running = [self.ask(stream=True) for _ in range(2)]
        self.wait_for('running', 2)
        waiting = [self.ask(), self.ask(stream=True), self.ask(n=3)]
        self.wait_for('waiting', 3)
        for connection in waiting:
            connection.close()
        self.wait_for('waiting', 0)
        self.assertEqual(self.server.status()['running'], 2)
        for connection in running:
            connection.close()
        self.check(5)

    def test_choices_of_a_fork(self):
        connection = self.ask(n=2, stream=True, temperature=1)
        self.wait_for('running', 2)
        connection.close()
        self.check(1)


class Stop(unittest.TestCase):
    def test_server_that_stops_ends_what_runs(self):
        for stream in (True, False):
            connection = None
            with Server('--threads', 1, '--pause-ms', 20) as server:
                connection = server.connect()
                connection.request('POST', '/v1/completions', json.dumps(
                    {'prompt': PROMPT, 'max_tokens': 900, 'stream': stream}))
                until = time.monotonic() + IDLE_SECONDS
                while server.status()['running'] == 0:
                    self.assertLess(time.monotonic(), until)
            response = connection.getresponse()
            self.assertEqual(response.status, 200 if stream else 500)
            self.assertIn(b'the server stops', response.read())
            connection.close()


if __name__ == '__main__':
    unittest.main()
