# SPDX-License-Identifier: MIT
"""A server under test, and the requests that tests send it. Python's standard library alone.

SERVER in the environment names the program (build/release/examples/server)."""
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

PROGRAM = os.environ.get('SERVER', 'build/release/examples/server')
# No test waits that long unless something is wrong, on a slow and busy machine too.
IDLE_SECONDS = 60


class Server:
    """with Server('--drafts', 0) as server: started on a free port; it has to end well."""

    def __init__(self, *options):
        self.options = [str(option) for option in options]

    def __enter__(self):
        self.errors = tempfile.TemporaryFile(mode='w+')
        self.process = subprocess.Popen([PROGRAM, '--port', '0', *self.options],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        line = self.process.stdout.readline()
        if ' on http://' not in line:
            self.process.kill()
            raise RuntimeError(f'the server does not start: {line}{self.complaints()}')
        self.address = '127.0.0.1'
        self.port = int(line.rsplit(':', 1)[1])
        self.model = line.split(' on ')[0]
        return self

    def __exit__(self, kind, *rest):
        if kind is not None:
            self.process.kill()
        else:
            self.stop()

    def stop(self):
        """Ends it; a block that is still held, or a complaint, is an error."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(IDLE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.process.stdout.close()
        complaints = self.complaints()
        self.errors.close()
        if status != 0 or complaints:
            raise AssertionError(f'the server ended with {status}: {complaints}')

    def complaints(self):
        self.errors.seek(0)
        return self.errors.read()

    # ---- requests

    def connect(self, timeout=60):
        return http.client.HTTPConnection(self.address, self.port, timeout=timeout)

    def socket(self, timeout=60):
        return socket.create_connection((self.address, self.port), timeout)

    def send(self, method, path, body=None, headers=None):
        """(status, body as bytes)"""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get(self, path):
        status, body = self.send('GET', path)
        assert status == 200, (path, status, body)
        return body.decode()

    def status(self):
        return json.loads(self.get('/status'))

    def metric(self, name):
        for line in self.get('/metrics').splitlines():
            if line.split('{')[0].split(' ')[0] == name:
                return float(line.rsplit(' ', 1)[1])
        raise KeyError(name)

    def post(self, path, body, headers=None):
        """(status, answer); body is what is made JSON of, or bytes."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        status, answer = self.send('POST', path, body,
                                   {'Content-Type': 'application/json', **(headers or {})})
        return status, json.loads(answer)

    def complete(self, tenant=None, **fields):
        """The answer of a completion that has to succeed."""
        return self._answer('/v1/completions', fields, tenant)

    def chat(self, tenant=None, **fields):
        return self._answer('/v1/chat/completions', fields, tenant)

    def _answer(self, path, fields, tenant):
        status, answer = self.post(path, fields, {'X-Tenant': tenant} if tenant else None)
        assert status == 200, (status, answer)
        return answer

    def stream(self, path='/v1/completions', **fields):
        """The events of a stream, each as it comes; the end has to be [DONE]."""
        connection = self.connect()
        try:
            connection.request('POST', path, json.dumps({**fields, 'stream': True}))
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            for event in events(response):
                if event == '[DONE]':
                    assert response.read().strip() == b''
                    return
                yield json.loads(event)
            raise AssertionError('the stream has no end')
        finally:
            connection.close()

    # ---- rest

    def wait_idle(self):
        """Waits until no request is there; then no sequence and no block may be held."""
        until = time.monotonic() + IDLE_SECONDS
        while True:
            status = self.status()
            if not status['requests'] and status['waiting'] == 0:
                break
            assert time.monotonic() < until, status['requests']
            time.sleep(0.02)
        assert status['holders'] == [], status['holders']
        for group in status['groups']:
            assert group['held'] == 0, group
        assert self.metric('server_choices_running') == 0
        for line in self.get('/metrics').splitlines():
            if line.startswith('pagedkv_blocks') and 'state="held"' in line:
                assert line.endswith(' 0'), line
        return status


def events(response):
    """The data of each event of an open stream."""
    for line in response:
        if line.startswith(b'data: '):
            yield line[6:].strip().decode()


def gather(stream):
    """What the events of a stream say together, in the shape of a whole answer's choices."""
    choices = {}
    usage = None
    for event in stream:
        assert 'error' not in event, event
        usage = event.get('usage', usage)
        for part in event['choices']:
            choice = choices.setdefault(part['index'], {'text': '', 'finish_reason': None,
                                                        'logprobs': None})
            assert choice['finish_reason'] is None, 'an event after the last'
            delta = part.get('delta')
            choice['text'] += part['text'] if delta is None else delta.get('content', '')
            choice['finish_reason'] = part['finish_reason']
            choice['logprobs'] = join_logprobs(choice['logprobs'], part['logprobs'])
    return [choices[index] for index in sorted(choices)], usage


def join_logprobs(before, more):
    if before is None or more is None:
        return before or more
    return {name: before[name] + more[name] for name in before}


def texts(answer):
    """The texts of a whole answer, in order."""
    assert [choice['index'] for choice in answer['choices']] == list(range(len(answer['choices'])))
    return [choice['text'] if 'text' in choice else choice['message']['content']
            for choice in answer['choices']]
