# SPDX-License-Identifier: MIT
"""Requests that are wrong: each gets a 4xx that says what is wrong, and changes nothing."""
import json
import unittest

from server import Server, texts

COMPLETION = '/v1/completions'
CHAT = '/v1/chat/completions'
MESSAGES = [{'role': 'user', 'content': 'Hi'}]
HUGE = [1e300, -1e300, 2 ** 63, -2 ** 63, 4294967296, 1e18]
WRONG_NUMBER = ['1', True, [1], {'a': 1}, [], *HUGE]
WRONG_WHOLE = [1.5, *WRONG_NUMBER]


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server('--threads', 1, '--body-kb', 256).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        self.server.wait_idle()

    def refused(self, path, body, param=None, expected=400, headers=None):
        status, answer = self.server.post(path, body, headers)
        shown = repr(body)[:200]
        self.assertEqual(status, expected, shown)
        error = answer['error']
        self.assertEqual(set(error), {'message', 'type', 'param', 'code'})
        self.assertEqual(error['type'], 'invalid_request_error')
        self.assertEqual(error['param'], param, shown)
        self.assertTrue(error['message'])
        return error['message']

    # ---- fields

    def check_field(self, path, base, name, values):
        for value in values:
            self.refused(path, {**base, name: value}, name)

    def test_fields_of_completions(self):
        base = {'prompt': 'Once', 'max_tokens': 2}
        for name, values in {
                'max_tokens': [0, -1, 100000, *WRONG_WHOLE],
                'n': [0, -1, 65, *WRONG_WHOLE],
                'seed': ['1', True, 0.5, [], {}, 1e300],
                'temperature': [-0.1, 2.1, *WRONG_NUMBER],
                'top_p': [0, -1, 1.1, '1', [], {}, 1e300],
                'logprobs': [-1, 21, 0.5, True, 'all', []],
                'priority': [-1, 1000, 0.5, '1', []],
                'stream': [0, 1, 'true', [], {}],
                'stream_options': [True, 1, 'a', []],
                'stop': [1, True, {}, [1], ['a', 2], [''], '', 'x' * 257, list('abcde')],
                'model': [1, True, [], {}],
                'prompt': [1, True, {}, [], ['a', 'b'], [[1], [2]], ['a', 1], [1, 'a'], [1.5],
                           [-1], [1e9], [[[1]]], [None, None], [1e300], [{}]],
                'best_of': [2], 'echo': [True], 'frequency_penalty': [1], 'presence_penalty': [1],
                'logit_bias': [{'1': 1}], 'suffix': ['x'], 'top_k': [3], 'min_p': [0.1],
        }.items():
            self.check_field(COMPLETION, base, name, values)

    def test_fields_of_chats(self):
        base = {'messages': MESSAGES, 'max_tokens': 2}
        for name, values in {
                'messages': [1, 'a', {}, [], True, 257 * MESSAGES],
                'max_completion_tokens': [0, 100000, *WRONG_WHOLE],
                'logprobs': [0, 1, 'true', []],
                'top_logprobs': [-1, 21, 0.5, True, 'all', [], 3],
                'tools': [[{'type': 'function'}]], 'tool_choice': ['auto'],
                'functions': [[{}]], 'response_format': [{'type': 'json_object'}],
        }.items():
            self.check_field(CHAT, base, name, values)

    def test_fields_of_messages(self):
        for message, param in (
                ({}, 'role'), (1, 'role'), ('a', 'role'), ({'role': 1}, 'role'),
                ({'role': 'king', 'content': 'a'}, 'role'), ({'role': 'user'}, 'content'),
                ({'role': 'user', 'content': 1}, 'content'),
                ({'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]}, 'content')):
            self.refused(CHAT, {'messages': [*MESSAGES, message]}, f'messages[1].{param}')

    def test_missing_fields(self):
        self.refused(COMPLETION, {}, 'prompt')
        self.refused(COMPLETION, {'prompt': None}, 'prompt')
        self.refused(CHAT, {}, 'messages')

    def test_null_is_as_left_out(self):
        fields = dict.fromkeys(('n', 'seed', 'stop', 'stream', 'temperature', 'top_p', 'model',
                                'logprobs', 'priority', 'echo', 'stream_options'))
        self.server.complete(prompt='Once', max_tokens=2, **fields)

    def test_stream_options_name_their_field(self):
        self.refused(COMPLETION, {'prompt': 'a', 'stream': True,
                                  'stream_options': {'include_usage': 1}}, 'include_usage')

    def test_unknown_model(self):
        self.refused(COMPLETION, {'prompt': 'a', 'model': 'gpt-4'}, 'model', 404)

    def test_prompt_longer_than_the_model(self):
        for length in (5000, 50000):
            self.refused(COMPLETION, {'prompt': 'a' * length, 'max_tokens': 1}, 'prompt')
            self.refused(COMPLETION, {'prompt': length * [97], 'max_tokens': 1}, 'prompt')
            self.refused(CHAT, {'messages': [{'role': 'user', 'content': 'a' * length}]},
                         'messages')

    def test_prompt_and_max_tokens_together(self):
        prompt = 'a' * 600
        limit = self.server.status()
        self.assertEqual(limit['model'], self.server.model)
        self.refused(COMPLETION, {'prompt': prompt, 'max_tokens': 1000}, 'max_tokens')

    # ---- characters

    def test_nul_is_refused_and_cuts_nothing(self):
        for prompt in ('a\0b', '\0', 'a\\\0'):
            self.refused(COMPLETION, {'prompt': prompt, 'max_tokens': 1}, 'prompt')
            self.refused(COMPLETION, {'prompt': 'a', 'user': {'x': [1]}, 'stop': [prompt]}, 'stop')
            self.refused(CHAT, {'model': None, 'messages': [{'role': 'user', 'content': prompt}]},
                         'messages')
        self.refused(COMPLETION, b'{"prompt": "a\0b"}', 'prompt')
        self.refused(COMPLETION, b'{"prompt": "a"}\0')  # behind the object
        self.refused(COMPLETION, b'\0')
        self.refused(COMPLETION, b'{"pro\\u0000mpt": "a", "prompt": "a"}')
        whole = {'prompt': 'a\\u0000b', 'max_tokens': 4, 'temperature': 0}  # a backslash, no NUL
        self.assertEqual(self.server.complete(**whole)['usage']['prompt_tokens'], 9)

    def test_invalid_utf8(self):
        for wrong in (b'\xff', b'\xc0\x80', b'\xed\xa0\x80', b'\xf4\x90\x80\x80', b'\xe2\x82',
                      b'\x80', b'\xf0\x80\x80\x80', b'\xfe'):
            self.refused(COMPLETION, b'{"prompt": "a%sb"}' % wrong)
            self.refused(COMPLETION, b'{"%s": 1}' % wrong)
            self.refused(COMPLETION, wrong)

    def test_lone_surrogates(self):
        for wrong in (b'\\ud800', b'\\udc00', b'\\ud800\\u0041', b'\\ud800\\ud800'):
            self.refused(COMPLETION, b'{"prompt": "a%sb"}' % wrong)

    def test_all_of_unicode_is_taken(self):
        for text in ('\u00e9\u4e2d\U0001f600', '\u0001\u001f', '\ufffe\uffff', '\u202e'):
            answer = self.server.complete(prompt=text, max_tokens=1)
            self.assertEqual(answer['usage']['prompt_tokens'], 1 + len(text.encode()))

    # ---- JSON

    def test_every_truncation(self):
        for path, fields in (
                (COMPLETION, {'prompt': 'a\u20ac"\\', 'n': 1, 'stop': ['x'], 'temperature': 0.5,
                              'stream_options': {'include_usage': False}, 'max_tokens': 1}),
                (CHAT, {'messages': MESSAGES, 'logprobs': True, 'max_tokens': 1})):
            whole = json.dumps(fields, ensure_ascii=False).encode()
            connection = self.server.connect()
            for length in range(len(whole)):
                connection.request('POST', path, whole[:length])
                response = connection.getresponse()
                self.assertEqual(response.status, 400, whole[:length])
                self.assertIn('error', json.loads(response.read()))
            connection.close()
            self.assertEqual(self.server.post(path, whole)[0], 200)

    def test_what_is_no_object(self):
        for body in (b'', b'null', b'[]', b'1', b'"a"', b'true', b'{"prompt":"a"}}', b'{"prompt":}',
                     b'{"prompt":"a"} x', b"{'prompt':'a'}", b'{"prompt" "a"}', b'NaN',
                     b'{"prompt":"a","n":NaN}', b'{"prompt":"a","n":0x1}', b'{"prompt":"a",}'):
            self.refused(COMPLETION, body)

    def test_deep_nesting(self):
        for depth in (999, 1001, 100000):
            for before, behind in ((b'[', b']'), (b'{"a":', b'}')):
                deep = before * depth + b'1' + behind * depth
                if len(deep) < 200000:
                    self.assertEqual(self.server.post(
                        COMPLETION, b'{"prompt": ' + deep + b'}')[0], 400)
                    self.refused(COMPLETION, before * depth)

    def test_long_numbers(self):
        for number in (b'9' * 400, b'1e999', b'-1e999', b'0.' + b'3' * 300):
            status, _ = self.server.post(COMPLETION, b'{"prompt": "a", "max_tokens": %s}' % number)
            self.assertEqual(status, 400, number)
        self.refused(COMPLETION, b'{"prompt": [1e999]}', 'prompt')

    def test_many_members(self):
        body = json.dumps({**{f'x{i}': i for i in range(8000)}, 'prompt': 'a', 'max_tokens': 1})
        self.assertEqual(self.server.post(COMPLETION, body.encode())[0], 200)

    # ---- routes and headers

    def test_unknown_paths(self):
        for path in ('/v1', '/v1/completions/', '/V1/COMPLETIONS', '//', '/../etc/passwd', '/%00',
                     '/status/x', '/v1/embeddings', '/' + 'a' * 5000):
            for method in ('GET', 'POST'):
                status, body = self.server.send(method, path)
                self.assertEqual(status, 404, path)
                self.assertIn('error', json.loads(body))

    def test_wrong_methods(self):
        for path, method in ((COMPLETION, 'GET'), (COMPLETION, 'PUT'), (CHAT, 'DELETE'),
                             ('/status', 'POST'), ('/', 'PATCH'), ('/metrics', 'OPTIONS'),
                             ('/health', 'BREW')):
            status, body = self.server.send(method, path)
            self.assertEqual(status, 405, (path, method))
            self.assertIn('error', json.loads(body))
        self.assertEqual(self.server.send('HEAD', '/'), (200, b''))

    def test_bad_tenants(self):
        fields = {'prompt': 'a', 'max_tokens': 1}
        for tenant in ('x' * 65, 'a b', 'a\tb', b'\xc3\xa9', b'\xff', b'a\x7fb', b'\x01'):
            self.refused(COMPLETION, fields, 'X-Tenant', headers={'X-Tenant': tenant})
        for tenant in ('x' * 64, '~', 'a"b\\c', ''):
            self.assertEqual(self.server.post(COMPLETION, fields, {'X-Tenant': tenant})[0], 200)

    def test_answers_are_right_after_all(self):
        self.assertEqual(len(texts(self.server.complete(prompt='Once', max_tokens=5))), 1)


if __name__ == '__main__':
    unittest.main()
