# SPDX-License-Identifier: MIT
"""Folders of safetensors served over HTTP: tokens and logprobs are those of a forward pass in
numpy, and special tokens come out of no client's text. Skipped without numpy."""
import json
import tempfile
import unittest

import models
from server import Server

SHAPES = {'llama': (models.LLAMA, 'BF16', models.LLAMA3, models.HEADERS),
          'qwen3': (models.QWEN3_WINDOWS, 'F16', models.QWEN, models.CHATML)}
MERGES = [(b't', b'h'), (b'th', b'e'), (b' ', b'the'), (b'i', b'n'), (b'1', b'2')]
PROMPT = [84, 104, 101, 32, 99, 97, 116, 259, 7, 200, 33]
NUM_TOKENS, NUM_TOP, TOLERANCE = 24, 20, 2e-4


@unittest.skipUnless(models.np, 'no numpy')
class Folders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.served = {}
        for seed, (name, (config, dtype, pattern, special)) in enumerate(SHAPES.items()):
            tokenizer, vocab = models.tokenizer_of(MERGES, pattern, special, True, False)
            config = {**config, 'vocab_size': len(vocab) + len(special), 'eos_token_id': None}
            tensors, values = models.random_weights(config, dtype, seed)
            folder = f'{cls.work.name}/{name}-1.5'
            models.write_folder(folder, config, tensors, tokenizer, shards=seed + 1)
            cls.served[name] = (folder, config, values, vocab, special)

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def expected(self, config, values, prompt):
        """Greedy tokens, and the logprobs before each, by numpy."""
        tokens, rows = list(prompt), []
        for _ in range(NUM_TOKENS):
            logits = models.numpy_logits(config, values, tokens)[-1]
            rows.append(logits - logits.max() - models.np.log(models.np.exp(
                logits - logits.max()).sum()))
            tokens.append(int(logits.argmax()))
        return tokens[len(prompt):], rows

    def complete(self, server):
        """The choice; objects are lists of pairs, since texts of tokens need not differ."""
        body = json.dumps({'prompt': PROMPT, 'max_tokens': NUM_TOKENS, 'temperature': 0,
                           'logprobs': NUM_TOP})
        status, answer = server.send('POST', '/v1/completions', body)
        self.assertEqual(status, 200, answer)
        pairs = dict(json.loads(answer, object_pairs_hook=list))
        choice = dict(pairs['choices'][0])
        return choice['text'], dict(choice['logprobs'])

    def check_completion(self, server, config, values, vocab):
        tokens, rows = self.expected(config, values, PROMPT)
        text, logprobs = self.complete(server)
        got = logprobs['token_logprobs']
        ended = next((i for i, token in enumerate(tokens) if token >= len(vocab)), NUM_TOKENS)
        self.assertGreaterEqual(len(got), ended)
        bytes_of = {token: data for data, token in vocab.items()}
        expected = b''.join(bytes_of.get(token, b'') for token in tokens[:len(got)])
        self.assertEqual(text, expected.decode(errors='replace'))
        for token, row, logprob in zip(tokens, rows, got):
            self.assertAlmostEqual(logprob, row[token], delta=TOLERANCE)
        for row, top in zip(rows, logprobs['top_logprobs']):
            largest = models.np.sort(row)[::-1][:NUM_TOP]
            self.assertEqual(len(top), NUM_TOP)
            for (_, logprob), right in zip(top, largest):
                self.assertAlmostEqual(logprob, right, delta=TOLERANCE)

    def test_completions_are_those_of_numpy(self):
        for name, (folder, config, values, vocab, _) in self.served.items():
            with self.subTest(name), Server('--model', folder, '--threads', 1, '--cache-mb', 8,
                                            '--chunk', 5) as server:
                self.assertEqual(server.model, f'{name}-1.5')
                self.check_completion(server, config, values, vocab)
                server.wait_idle()

    def test_special_tokens_of_a_text_are_text(self):
        for name, (folder, *_, special) in self.served.items():
            with self.subTest(name), Server('--model', folder, '--threads', 1,
                                            '--cache-mb', 8) as server:
                for text in special:
                    answer = server.complete(prompt=text, max_tokens=1, temperature=0)
                    self.assertGreater(answer['usage']['prompt_tokens'], 3)
                shown = []
                for seed in range(4):  # a model of random weights may end at once
                    answer = server.chat(messages=[{'role': 'user', 'content': 'hi'}], seed=seed,
                                         max_tokens=3, logprobs=True, top_logprobs=NUM_TOP)
                    logprobs = answer['choices'][0]['logprobs']
                    shown += logprobs['content'] if logprobs else []
                self.assertTrue(shown)
                for token in shown:
                    for top in token['top_logprobs']:
                        self.assertNotIn(top['token'], special)
