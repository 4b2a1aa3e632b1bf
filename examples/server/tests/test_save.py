# SPDX-License-Identifier: MIT
"""What a server has computed is saved when it ends, and found after the next start."""
import os
import shutil
import tempfile
import unittest

from server import Server, texts

BLOCK_SIZE = 16
TEXT = 'Once upon a time there was a little girl who lived near the forest. She had a dog. ' * 3


def cached(answer):
    return answer['usage']['prompt_tokens_details']['cached_tokens']


def whole_blocks(num_tokens):
    return num_tokens // BLOCK_SIZE * BLOCK_SIZE


class Complaining(Server):
    """It may say which files it has not loaded."""

    def complaints(self):
        self.said = super().complaints()
        return '\n'.join(line for line in self.said.splitlines() if 'is not loaded' not in line)


class Saved(unittest.TestCase):
    def setUp(self):
        self.parent = tempfile.mkdtemp()
        self.folder = self.parent + '/saved'
        self.options = ('--threads', 1, '--block-size', BLOCK_SIZE, '--save', self.folder)

    def tearDown(self):
        shutil.rmtree(self.parent)

    def files(self):
        return sorted(os.listdir(self.folder))

    def test_a_conversation_goes_on_behind_a_restart(self):
        """Its last answer is found too, with the next turn behind it."""
        first = {'prompt': TEXT, 'max_tokens': 60, 'temperature': 0}
        with Server(*self.options) as server:
            before = server.complete(**first)
        second = {**first, 'prompt': TEXT + texts(before)[0] + ' Then she saw a cat.'}
        with Server('--threads', 1) as server:
            expected = texts(server.complete(**second))
        with Server(*self.options) as server:
            after = server.complete(**second)
            self.assertEqual(texts(after), expected)
            self.assertGreaterEqual(cached(after),
                                    whole_blocks(before['usage']['total_tokens']) - BLOCK_SIZE)
            again = server.complete(**first)
            self.assertEqual(texts(again), texts(before))
            self.assertGreater(cached(again), 0)

    def test_a_request_that_the_end_breaks_off_is_found(self):
        fields = {'prompt': TEXT, 'max_tokens': 700, 'temperature': 1, 'seed': 3}
        with Server(*self.options) as server:
            with self.assertRaises((KeyError, AssertionError)):
                for count, event in enumerate(server.stream(**fields)):
                    event['choices']
                    if count == 20:
                        server.process.terminate()
        with Server(*self.options) as server:
            answer = server.complete(**{**fields, 'max_tokens': 5})
            self.assertGreaterEqual(cached(answer),
                                    whole_blocks(answer['usage']['prompt_tokens'] - 1))

    def test_tenants_stay_apart(self):
        fields = {'prompt': TEXT, 'max_tokens': 1, 'temperature': 0}
        with Server(*self.options) as server:
            server.complete(tenant='a', **fields)
        with Server(*self.options) as server:
            self.assertEqual(cached(server.complete(tenant='b', **fields)), 0)
            self.assertGreater(cached(server.complete(tenant='a', **fields)), 0)

    def test_a_text_is_saved_once_and_old_files_go(self):
        with Server(*self.options) as server:
            for _ in range(5):
                for number in range(3):
                    server.complete(prompt=TEXT * (1 + number), max_tokens=1, temperature=0)
        self.assertEqual(len(self.files()), 3)
        with Server(*self.options) as server:
            server.complete(prompt='A boy named Tim had a red ball and he played', max_tokens=1)
        self.assertEqual(self.files(), ['0.pkv'])

    def test_what_was_loaded_stays_when_nothing_was_asked(self):
        with Server(*self.options) as server:
            server.complete(prompt=TEXT, max_tokens=1, temperature=0)
        with Server(*self.options):
            pass
        self.assertEqual(self.files(), ['0.pkv'])

    def test_a_damaged_file_is_not_loaded(self):
        fields = {'prompt': TEXT, 'max_tokens': 1, 'temperature': 0}
        with Server(*self.options) as server:
            expected = texts(server.complete(**fields))
        path = f'{self.folder}/0.pkv'
        with open(path, 'r+b') as file:
            file.seek(os.path.getsize(path) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        with Complaining(*self.options) as server:
            answer = server.complete(**fields)
            self.assertEqual((texts(answer), cached(answer)), (expected, 0))
        self.assertIn('0.pkv is not loaded', server.said)

    def test_a_file_of_another_cache_is_not_loaded(self):
        fields = {'prompt': TEXT, 'max_tokens': 1, 'temperature': 0}
        with Server(*self.options) as server:
            server.complete(**fields)
        with Complaining(*self.options, '--dtype', 'bf16') as server:
            self.assertEqual(cached(server.complete(**fields)), 0)
        self.assertIn('0.pkv is not loaded', server.said)


if __name__ == '__main__':
    unittest.main()
