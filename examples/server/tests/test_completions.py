# SPDX-License-Identifier: MIT
"""What a client asks for is what it gets: texts, choices, stops, sampling, logprobs, usage."""
import math
import subprocess
import unittest

from server import Server, gather, texts

STORY = 'Once upon a time there was a little girl who lived near the forest. One day she saw'


class Completions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server('--threads', 1).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def complete(self, **fields):
        return self.server.complete(**{'prompt': STORY, 'max_tokens': 60, 'seed': 7, **fields})

    def text(self, **fields):
        return texts(self.complete(**fields))[0]

    # ---- shapes

    def test_curl_gets_a_completion(self):
        url = f'http://{self.server.address}:{self.server.port}/v1/completions'
        body = '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'
        done = subprocess.run(['curl', '-sS', '-f', url, '-d', body], capture_output=True,
                              text=True, check=True)
        self.assertIn('"finish_reason":"length"', done.stdout)
        self.assertIn('"completion_tokens":8', done.stdout)

    def test_curl_gets_a_stream(self):
        url = f'http://{self.server.address}:{self.server.port}/v1/chat/completions'
        body = '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "stream": true}'
        done = subprocess.run(['curl', '-sSN', '-f', url, '-d', body], capture_output=True,
                              text=True, check=True)
        lines = [line for line in done.stdout.splitlines() if line]
        self.assertTrue(all(line.startswith('data: ') for line in lines))
        self.assertEqual(lines[-1], 'data: [DONE]')

    def test_models_health_and_page_answer(self):
        self.assertIn(f'"id":"{self.server.model}"', self.server.get('/v1/models'))
        self.assertEqual(self.server.get('/health'), '{"status":"ok"}')
        self.assertIn('<!doctype html>', self.server.get('/'))
        self.assertIn('# TYPE server_requests_done_total counter', self.server.get('/metrics'))

    def test_shape_of_a_completion(self):
        answer = self.complete(model=self.server.model)
        self.assertEqual(answer['object'], 'text_completion')
        self.assertEqual(answer['model'], self.server.model)
        self.assertTrue(answer['id'].startswith('cmpl-'))
        self.assertEqual(set(answer['choices'][0]), {'index', 'text', 'logprobs', 'finish_reason'})
        usage = answer['usage']
        self.assertEqual(usage['prompt_tokens'] + usage['completion_tokens'],
                         usage['total_tokens'])

    def test_shape_of_a_chat(self):
        answer = self.server.chat(messages=[{'role': 'user', 'content': STORY}], max_tokens=5)
        self.assertEqual(answer['object'], 'chat.completion')
        self.assertEqual(answer['choices'][0]['message']['role'], 'assistant')
        self.assertTrue(answer['id'].startswith('chatcmpl-'))

    def test_streamed_and_whole_answers_are_equal(self):
        for fields in ({}, {'n': 3}, {'logprobs': 2}, {'stop': ['the', 'w']}, {'temperature': 0},
                       {'n': 2, 'logprobs': 0, 'stop': 'an'}):
            fields = {'prompt': STORY, 'max_tokens': 50, 'seed': 11, **fields}
            whole = self.server.complete(**fields)
            choices, usage = gather(self.server.stream(
                **fields, stream_options={'include_usage': True}))
            self.assertEqual([choice['text'] for choice in choices], texts(whole))
            for one, other in zip(choices, whole['choices']):
                self.assertEqual(one['finish_reason'], other['finish_reason'])
                self.assertEqual(one['logprobs'], other['logprobs'])
            self.assertEqual(usage['completion_tokens'], whole['usage']['completion_tokens'])

    def test_streamed_and_whole_chats_are_equal(self):
        fields = {'messages': [{'role': 'system', 'content': 'Tell a story.'},
                               {'role': 'user', 'content': STORY}],
                  'max_tokens': 50, 'seed': 3, 'n': 2, 'logprobs': True, 'top_logprobs': 3}
        whole = self.server.chat(**fields)
        choices, usage = gather(self.server.stream('/v1/chat/completions', **fields))
        self.assertEqual([choice['text'] for choice in choices], texts(whole))
        self.assertEqual([choice['logprobs'] for choice in choices],
                         [choice['logprobs'] for choice in whole['choices']])
        self.assertIsNone(usage)

    # ---- choices and sampling

    def test_choice_depends_on_seed_and_number_alone(self):
        many = texts(self.complete(n=6))
        self.assertEqual(many[:1], texts(self.complete(n=1)))
        self.assertEqual(many[:3], texts(self.complete(n=3)))
        self.assertEqual(len(set(many)), 6)
        self.assertNotEqual(many, texts(self.complete(n=6, seed=8)))

    def test_seed_repeats_an_answer(self):
        self.assertEqual(self.text(), self.text())
        self.assertNotEqual(self.text(seed=1), self.text(seed=2))
        self.assertNotEqual(self.text(seed=-1), self.text(seed=1))
        self.assertNotEqual(self.text(seed=None), self.text(seed=None))

    def test_temperature_0_takes_the_most_likely(self):
        greedy = self.complete(temperature=0, logprobs=1)
        self.assertEqual(texts(greedy), texts(self.complete(temperature=0, seed=99)))
        lists = greedy['choices'][0]['logprobs']
        for chosen, top in zip(lists['token_logprobs'], lists['top_logprobs']):
            self.assertEqual(chosen, max(top.values()))
        self.assertEqual(texts(self.complete(temperature=0, n=2)), 2 * texts(greedy))

    def test_top_p_leaves_the_nucleus_alone(self):
        self.assertEqual(self.text(top_p=1e-6), self.text(temperature=0))
        for top_p in (0.3, 0.8):
            answer = self.complete(top_p=top_p, logprobs=20, max_tokens=200, n=2)
            for choice in answer['choices']:
                lists = choice['logprobs']
                for chosen, top in zip(lists['token_logprobs'], lists['top_logprobs']):
                    before = sum(math.exp(other) for other in top.values() if other > chosen)
                    self.assertLess(before, top_p + 1e-4)

    # ---- stops and lengths

    def test_stop_ends_before_its_text(self):
        whole = self.text(temperature=0, max_tokens=100)
        for at in range(5, 80, 7):
            for length in (1, 2, 3, 9):
                stop = whole[at:at + length]
                choice = self.complete(temperature=0, max_tokens=100, stop=stop)['choices'][0]
                self.assertEqual(choice['text'], whole[:whole.find(stop)], stop)
                self.assertEqual(choice['finish_reason'], 'stop')

    def test_first_of_several_stops_counts(self):
        whole = self.text(temperature=0, max_tokens=100)
        stops = [whole[60:64], whole[20:25], 'never there', whole[40:42]]
        first = min(whole.find(stop) for stop in stops if stop in whole)
        self.assertEqual(self.text(temperature=0, max_tokens=100, stop=stops), whole[:first])

    def test_stop_that_only_begins_is_given_in_the_end(self):
        whole = self.text(temperature=0)
        self.assertEqual(self.text(temperature=0, stop=whole[-5:] + '~'), whole)
        self.assertEqual(self.text(temperature=0, stop=['\u20ac', whole[30:33] + '~']), whole)

    def test_max_tokens_is_the_length(self):
        for length in (1, 2, 33):
            answer = self.complete(max_tokens=length, n=2)
            self.assertEqual(answer['usage']['completion_tokens'], 2 * length)
            self.assertEqual({c['finish_reason'] for c in answer['choices']}, {'length'})
        chat = self.server.chat(messages=[{'role': 'user', 'content': 'Hi'}],
                                max_completion_tokens=3)
        self.assertEqual(chat['usage']['completion_tokens'], 3)

    # ---- logprobs

    def test_logprobs_of_completions(self):
        lists = self.complete(logprobs=5)['choices'][0]['logprobs']
        text = ''.join(lists['tokens'])
        self.assertEqual(text, self.text())
        self.assertEqual(len(lists['token_logprobs']), 60)
        for token, chosen, top in zip(lists['tokens'], lists['token_logprobs'],
                                      lists['top_logprobs']):
            self.assertLessEqual(len(top), 5)
            self.assertLessEqual(sum(math.exp(value) for value in top.values()), 1 + 1e-4)
            if token in top and token != '\ufffd':
                self.assertEqual(top[token], chosen)
        none = self.complete(logprobs=0)['choices'][0]['logprobs']
        self.assertEqual(none['top_logprobs'], 60 * [{}])
        self.assertIsNone(self.complete()['choices'][0]['logprobs'])

    def test_logprobs_of_chats(self):
        fields = {'messages': [{'role': 'user', 'content': STORY}], 'max_tokens': 20, 'seed': 1}
        choice = self.server.chat(**fields, logprobs=True, top_logprobs=20)['choices'][0]
        content = choice['logprobs']['content']
        self.assertEqual(len(content), 20)
        self.assertEqual(b''.join(bytes(item['bytes']) for item in content).decode(),
                         choice['message']['content'])
        for item in content:
            tops = [top['logprob'] for top in item['top_logprobs']]
            self.assertEqual(len(tops), 20)
            self.assertEqual(tops, sorted(tops, reverse=True))
            self.assertLessEqual(item['logprob'], 0)
        bare = self.server.chat(**fields, logprobs=True)['choices'][0]['logprobs']['content']
        self.assertEqual([item['top_logprobs'] for item in bare], 20 * [[]])

    # ---- prompts, cache and tenants

    def test_prompt_may_be_token_ids(self):
        ids = list(STORY.encode())
        answers = [texts(self.complete(prompt=[begin] + ids))[0] for begin in (256, 257)]
        self.assertIn(self.text(), answers)
        self.assertEqual(self.complete(prompt=ids)['usage']['prompt_tokens'], len(ids))
        self.assertEqual(self.text(prompt=[STORY]), self.text())

    def test_second_request_finds_the_prompt(self):
        prompt = 'A prompt that no other test has, long enough for some blocks of tokens. ' * 3
        first = self.complete(prompt=prompt)
        second = self.complete(prompt=prompt)
        self.assertLess(first['usage']['prompt_tokens_details']['cached_tokens'], 16)
        found = second['usage']['prompt_tokens_details']['cached_tokens']
        self.assertGreater(found, 200)
        self.assertLess(found, second['usage']['prompt_tokens'])
        self.assertEqual(texts(first), texts(second))

    def test_prompt_that_differs_late_finds_its_beginning(self):
        common = 'The beginning of this is common to both of the requests, and long. ' * 2
        self.complete(prompt=common + 'One')
        found = self.complete(prompt=common + 'Two')['usage']['prompt_tokens_details']
        self.assertGreaterEqual(found['cached_tokens'], len(common) // 16 * 16)

    def test_tenants_share_nothing(self):
        prompt = 'What one tenant has asked, another one shall not notice. ' * 3
        found = []
        for tenant in ('a', 'a', 'b', 'b', None, None, 'a'):
            answer = self.server.complete(tenant=tenant, prompt=prompt, max_tokens=4, seed=1)
            found.append(answer['usage']['prompt_tokens_details']['cached_tokens'] > len(prompt) / 2)
            if tenant and not found[-1]:
                self.assertEqual(answer['usage']['prompt_tokens_details']['cached_tokens'], 0)
        self.assertEqual(found, [False, True, False, True, False, True, True])

    def test_connection_is_kept_alive(self):
        connection = self.server.connect()
        for length in (1, 2, 3):
            body = f'{{"prompt": "Once", "max_tokens": {length}}}'
            connection.request('POST', '/v1/completions', body)
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            self.assertIn(f'"completion_tokens":{length}'.encode(), response.read())
        connection.close()

    def test_nothing_is_held_in_the_end(self):
        self.server.wait_idle()


if __name__ == '__main__':
    unittest.main()
